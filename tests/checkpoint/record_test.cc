// Commit records: their text, and that no damage of it passes.

#include "dtensor/checkpoint/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>

#include "dtensor/base/error.h"
#include "dtensor/checkpoint/crc32c.h"

namespace dtensor::checkpoint {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The CRC by its definition: a reflected division by the polynomial 0x1EDC6F41, bit by bit.
uint32_t slow_crc32c(std::string_view text) {
  uint32_t crc = 0xffffffffU;
  for (const char c : text) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1U ? 0x82f63b78U : 0U);
  }
  return ~crc;
}

TEST(Crc32c, IsTheOneOfTheStandard) {
  EXPECT_EQ(crc32c(bytes("123456789")), 0xe3069283U);  // RFC 3720, and every catalogue of CRCs
  EXPECT_EQ(crc32c({}), 0U);
  std::string text;
  for (int i = 0; i < 3000; ++i) text += static_cast<char>(i * i >> 3);
  EXPECT_EQ(crc32c(bytes(text)), slow_crc32c(text));
  EXPECT_EQ(crc32c(bytes(text).subspan(1000), crc32c(bytes(text).first(1000))), slow_crc32c(text));
}

TEST(Crc32c, BlocksDoNotDependOnThePieces) {
  const std::string text(2 * kBlockBytes + 17, 'x');
  const std::vector<uint32_t> want = {slow_crc32c(text.substr(0, kBlockBytes)),
                                      slow_crc32c(text.substr(0, kBlockBytes)),
                                      slow_crc32c(text.substr(0, 17))};
  BlockCrcs pieces;
  for (size_t at = 0; at < text.size(); at += 70001) {
    pieces.update(bytes(text).subspan(at, std::min<size_t>(70001, text.size() - at)));
  }
  EXPECT_EQ(pieces.crcs(), want);
  BlockCrcs exact;
  exact.update(bytes(text).first(kBlockBytes));
  EXPECT_EQ(exact.crcs().size(), 1U);
}

Record example() {
  Record r;
  r.id = "20260301T101500Z-ab12-g0-s3";
  r.step = 20;
  r.rank = 3;
  r.world = 4;
  r.files = {{"rank-00003.safetensors", 1048577, {1, 0xffffffff}}};
  r.tensors = {{"w\"é", DType::kBFloat16, {16, 4}, {{0, "w", {{12, 0}, {4, 4}}}}},
               {"b", DType::kInt64, {}, {{0, "b", {{}, {}}}}, 0x12U},
               {"none", DType::kFloat32, {0, 3}, {}, {}, RecordReplica{{{0, 1}, {0, 2}}, 0xfe}}};
  r.aliases = {{"head", "w"}};
  r.numbers = {{"optimizer.steps", -1}};
  return r;
}

TEST(Record, ComesBackFromItsText) {
  const Record want = example();
  const Record got = parse_record(to_text(want), "r");
  EXPECT_EQ(got.id, want.id);
  EXPECT_EQ(got.step, 20);
  EXPECT_EQ(got.rank, 3);
  EXPECT_EQ(got.world, 4);
  ASSERT_EQ(got.files.size(), 1U);
  EXPECT_EQ(got.files[0].name, want.files[0].name);
  EXPECT_EQ(got.files[0].bytes, 1048577);
  EXPECT_EQ(got.files[0].block_crcs, want.files[0].block_crcs);
  ASSERT_EQ(got.tensors.size(), 3U);
  EXPECT_EQ(got.tensors[0].name, "w\"é");
  EXPECT_EQ(got.tensors[0].dtype, DType::kBFloat16);
  EXPECT_EQ(got.tensors[0].shape, (Shape{16, 4}));
  EXPECT_EQ(got.tensors[0].chunks[0].box, (Box{{12, 0}, {4, 4}}));
  EXPECT_EQ(got.tensors[1].same_on_all, 0x12U);
  EXPECT_EQ(got.tensors[1].shape.ndim(), 0);
  EXPECT_TRUE(got.tensors[2].chunks.empty());
  EXPECT_FALSE(got.tensors[1].replica.has_value());
  ASSERT_TRUE(got.tensors[2].replica.has_value());
  EXPECT_EQ(got.tensors[2].replica->box, (Box{{0, 1}, {0, 2}}));
  EXPECT_EQ(got.tensors[2].replica->crc32c, 0xfeU);
  EXPECT_EQ(got.aliases, want.aliases);
  EXPECT_EQ(got.numbers, want.numbers);
}

TEST(Record, NoFlippedBitAndNoCutPasses) {  // pytorch#189945
  const std::string text = to_text(example());
  ASSERT_EQ(text.substr(0, 11), R"({"crc32c":")");
  EXPECT_EQ(std::stoul(text.substr(11, 8), nullptr, 16),
            slow_crc32c(text.substr(30, text.size() - 32)));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_THROW(parse_record(damaged, "r"), CheckpointError) << "bit " << bit;
  }
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THROW(parse_record(text.substr(0, size), "r"), CheckpointError) << size;
  }
  EXPECT_THROW(parse_record(text + text, "r"), CheckpointError);
}

struct Nonsense {
  std::string name;
  std::string from;
  std::string to;
  std::string says;
};
class NonsenseRecord : public ::testing::TestWithParam<Nonsense> {};

// With a right CRC: what the text says is checked as well.
TEST_P(NonsenseRecord, IsRefused) {
  const std::string text = to_text(example());
  std::string body = text.substr(30, text.size() - 32);
  const size_t at = body.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  body.replace(at, GetParam().from.size(), GetParam().to);
  const std::string crc = hex_of(std::vector<uint32_t>{slow_crc32c(body)});
  try {
    parse_record(R"({"crc32c":")" + crc + R"(","record":)" + body + "}\n", "the/record");
    FAIL() << "accepted " << body;
  } catch (const CheckpointError& e) {
    EXPECT_THAT(e.what(), HasSubstr("the/record"));
    EXPECT_THAT(e.what(), HasSubstr(GetParam().says));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, NonsenseRecord,
    ::testing::Values(
        Nonsense{"Version", R"("version":1)", R"("version":2)", "version 1"},
        Nonsense{"Path", "\"rank-00003.safetensors", "\"../rank-00003.safetensors", "plain name"},
        Nonsense{"AbsolutePath", "\"rank-00003.safetensors", "\"/rank-00003", "plain name"},
        Nonsense{"EmptyName", R"("name":"rank-00003.safetensors")", R"("name":"")", "plain name"},
        Nonsense{"Blocks", R"("bytes":1048577)", R"("bytes":1048576)", "1 blocks"},
        Nonsense{"NegativeBytes", R"("bytes":1048577)", R"("bytes":-1)", "no size"},
        Nonsense{"HugeBytes", R"("bytes":1048577)", R"("bytes":9223372036854775807)", "blocks"},
        Nonsense{"Dtype", R"("BF16")", R"("BF61")", "BF61"},
        Nonsense{"BoxOutside", R"("offset":[12,0])", R"("offset":[13,0])", "outside"},
        Nonsense{"BoxOverflows", R"("offset":[12,0])", R"("offset":[9223372036854775807,0])",
                 "outside"},
        Nonsense{"BoxNegative", R"("offset":[12,0])", R"("offset":[-1,0])", "no size"},
        Nonsense{"BoxDims", R"("offset":[12,0])", R"("offset":[12])", "outside"},
        Nonsense{"ShapeOverflows", R"("shape":[16,4])", R"("shape":[4611686018427387904,4])",
                 "64 bits"},
        Nonsense{"ShapeBeyondInt64", R"("shape":[16,4])", R"("shape":[9223372036854775808,0])",
                 "beyond int64"},
        Nonsense{"NineDims", R"("shape":[16,4])", R"("shape":[1,1,1,1,1,1,1,1,1])", "9 dims"},
        Nonsense{"ShapeOfText", R"("shape":[16,4])", R"("shape":"16")", "not a list"},
        Nonsense{"FloatingStep", R"("step":20)", R"("step":20.0)", "whole number"},
        Nonsense{"FileIndex", R"("file":0)", R"("file":1)", "not one of the files"},
        Nonsense{"Rank", R"("rank":3)", R"("rank":4)", "rank 4 of a world of 4"},
        Nonsense{"NoId", R"("id":)", R"("di":)", "has no id"},
        Nonsense{"ReplicaOutside", R"("offset":[0,1])", R"("offset":[0,2])", "the replica of"},
        Nonsense{"ReplicaNoCrc", R"("000000fe")", R"("fe")", "crc32c is no CRC"},
        Nonsense{"ReplicaNoSize", R"("size":[0,2])", R"("sise":[0,2])", "a replica has no size"},
        Nonsense{"NameTwice", R"("name":"none")", R"("name":"b")", "second of its name"},
        Nonsense{"KeyTwice", R"("step":20)", R"("step":20,"st\u0065p":21)", "stands twice"}),
    [](const auto& info) { return info.param.name; });

TEST(Record, NamesAndKeys) {  // pytorch#120356
  EXPECT_EQ(data_file_name(3), "rank-00003.safetensors");
  EXPECT_EQ(rank_of_record_name("rank-00003.record.json"), 3);
  EXPECT_EQ(rank_of_record_name("rank-123456.record.json"), 123456);
  for (const char* name :
       {"rank-3.record.json", "rank-.record.json", "rank-00003.record.json.tmp-1",
        "rank-99999999999.record.json", "xrank-00003.record.json", ""}) {
    EXPECT_EQ(rank_of_record_name(name), std::nullopt) << name;
  }
  EXPECT_EQ(chunk_key("w", 0), "w");
  EXPECT_EQ(chunk_key("w", 1), "w#1");
  EXPECT_EQ(chunk_key("w#1", 0), "w##1");
  EXPECT_EQ(chunk_key("#", 2), "###2");
}

}  // namespace
}  // namespace dtensor::checkpoint
