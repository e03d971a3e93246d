// The safetensors reader and writer against files made byte by byte here.

#include "dtensor/checkpoint/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "dtensor/base/error.h"
#include "dtensor/tests/checkpoint/temporary_directory.h"

namespace dtensor::safetensors {
namespace {

using testing::files_under;
using ::testing::HasSubstr;
using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

// Length, header and data, as the format has them.
std::string file_of(std::string_view header, std::string_view data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(header.size() >> (8 * i));
  return bytes.append(header).append(data);
}

std::string message_of(const std::string& path) {
  try {
    const File file(path);
  } catch (const CheckpointError& e) {
    return e.what();
  }
  return "";
}

std::string read_all(const File& file, const Entry& e) {
  std::string bytes(static_cast<size_t>(e.end_bytes - e.begin_bytes), '?');
  file.read(e.begin_bytes, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

TEST(Safetensors, ReadsEntriesInTheOrderOfTheirData) {
  const TemporaryDirectory dir;
  write_file(dir / "f", file_of(R"({"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},
    "__metadata__":{"format":"pt"},"a":{"data_offsets":[0,4],"shape":[2,1],"dtype":"BF16"},
    "none":{"dtype":"F64","shape":[0,5],"data_offsets":[7,7]},
    "scalar":{"dtype":"BOOL","shape":[],"data_offsets":[7,8],"later_field":[{"x":[-1.5]}]}}  )",
                                "abcdefg\1"));
  const File file(dir / "f");
  ASSERT_EQ(file.entries().size(), 4U);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.entries()[0].dtype, DType::kBFloat16);
  EXPECT_EQ(file.entries()[0].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(read_all(file, *file.find("b")), "efg");
  EXPECT_EQ(read_all(file, *file.find("scalar")), "\1");
  EXPECT_EQ(file.find("none")->shape, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(file.find("c"), nullptr);
  std::string beyond(9, '?');
  EXPECT_THROW(file.read(0, std::as_writable_bytes(std::span(beyond))), ArgumentError);
  EXPECT_THROW(file.read(-1, std::as_writable_bytes(std::span(beyond))), ArgumentError);
}

struct Bad {
  std::string name;
  std::string bytes;
  std::string says;
};

std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return R"({"a":{"dtype":)" + std::string(dtype) + R"(,"shape":)" + std::string(shape) +
         R"(,"data_offsets":)" + std::string(offsets) + "}}";
}

// transformers#47176, sglang#32279, llama.cpp#1603, ComfyUI#15602, TensorRT-LLM#17368
std::vector<Bad> bad_files() {
  const std::string two = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)";
  const std::string u8 = R"({"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  std::string huge_length = file_of("", "xx");
  const uint64_t length = 100000001;
  memcpy(huge_length.data(), &length, 8);
  std::string deep = R"({"a":{"x":)" + std::string(100000, '[');
  return {
      {"Empty", "", "has 0 bytes"},
      {"SevenBytes", std::string(7, '\0'), "has 7 bytes"},
      {"HeaderLongerThanTheReferenceTakes", huge_length, "100000001"},
      {"HeaderLongerThanTheFile", file_of("{}", "").substr(0, 9), "1 more bytes"},
      {"LengthOfAllOnes", std::string(8, '\xff') + "{}", "18446744073709551615"},
      {"NoHeader", file_of("", ""), "does not begin with {"},
      {"ByteOrderMark", file_of("\xef\xbb\xbf{}", ""), "does not begin with {"},
      {"Spaces", file_of(" {}", ""), "does not begin with {"},
      {"NulAfterTheEnd", file_of(std::string("{}\0x", 4), ""), "NUL at byte 10"},
      {"Rest", file_of("{} {}", ""), "at byte"},
      {"Array", file_of("[]", ""), "does not begin"},
      {"NotUtf8", file_of("{\"\xff\":1}", ""), "at byte"},
      {"LoneSurrogate", file_of(R"({"\ud800":{}})", ""), "at byte"},
      {"SameKeyTwice", file_of(two + R"("a":)" + u8 + "}", "xx"), "\"a\" stands twice"},
      {"SameKeyEscaped", file_of(two + R"("\u0061":)" + u8 + "}", "xx"), "\"a\" stands twice"},
      {"SameFieldTwice",
       file_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "xx"),
       "\"dtype\" stands twice"},
      {"SameMetadataTwice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "twice"},
      {"MetadataTwice", file_of(R"({"__metadata__":{},"__metadata__":{}})", ""), "twice"},
      {"MetadataOfNumbers", file_of(R"({"__metadata__":{"a":1}})", ""), "a number"},
      {"MetadataText", file_of(R"({"__metadata__":"a"})", ""), "a string"},
      {"TensorIsNull", file_of(R"({"a":null})", ""), "null"},
      {"TensorIsAList", file_of(R"({"a":[]})", ""), "an array"},
      {"TooDeep", file_of(deep, ""), "nested deeper"},
      {"ByteAfterTheData", file_of(one("\"U8\"", "[2]", "[0,2]"), "xxx"), "which has 3 bytes"},
      {"ByteTooFew", file_of(one("\"U8\"", "[2]", "[0,2]"), "x"), "which has 1 bytes"},
      {"DataWithoutTensor", file_of("{}", "x"), "which has 1 bytes"},
      {"Hole", file_of(one("\"U8\"", "[1]", "[1,2]"), "xx"), "without hole"},
      {"Overlap", file_of(two + R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "xxx"),
       "without hole or overlap"},
      {"SamePlace", file_of(two + R"("b":)" + u8 + "}", "xx"), "without hole or overlap"},
      {"Backwards", file_of(one("\"U8\"", "[0]", "[2,0]"), "xx"), "without hole"},
      {"OffsetBeyondInt64", file_of(one("\"U8\"", "[0]", "[9223372036854775808,0]"), ""), "int64"},
      {"OneOffset", file_of(one("\"U8\"", "[0]", "[0]"), ""), "1 data_offsets"},
      {"ThreeOffsets", file_of(one("\"U8\"", "[0]", "[0,0,0]"), ""), "more than two"},
      {"ShapeSmaller", file_of(one("\"U8\"", "[1]", "[0,2]"), "xx"), "its shape and dtype take 1"},
      {"DtypeLarger", file_of(one("\"I64\"", "[2]", "[0,2]"), "xx"), "take 16"},
      {"UnknownDtype", file_of(one("\"F31\"", "[2]", "[0,2]"), "xx"), "F31"},
      {"DtypeIsANumber", file_of(one("1", "[2]", "[0,2]"), "xx"), "a number"},
      {"DtypeIsAnObject", file_of(one("{}", "[2]", "[0,2]"), "xx"), "an object"},
      {"NegativeDim", file_of(one("\"U8\"", "[-1,2]", "[0,2]"), "xx"), "negative"},
      {"MinusZero", file_of(one("\"U8\"", "[-0]", "[0,0]"), ""), "-0"},
      {"FloatingDim", file_of(one("\"U8\"", "[2.0]", "[0,2]"), "xx"), "2.0"},
      {"ShapeInShape", file_of(one("\"U8\"", "[[2]]", "[0,2]"), "xx"), "an array"},
      {"DimBeyondInt64", file_of(one("\"U8\"", "[18446744073709551615,2,0]", "[0,0]"), ""),
       "18446744073709551615"},
      {"DimBeyondInt64BehindZero", file_of(one("\"U8\"", "[0,9223372036854775808]", "[0,0]"), ""),
       "9223372036854775808"},
      {"DimBeyondUint64", file_of(one("\"U8\"", "[36893488147419103232]", "[0,0]"), ""),
       "36893488147419103232"},
      {"ProductOverflows", file_of(one("\"U8\"", "[4294967296,4294967296,2]", "[0,0]"), ""),
       "more than 64 bits"},
      {"BytesOverflow", file_of(one("\"I64\"", "[2305843009213693952]", "[0,0]"), ""),
       "more than 64 bits"},
      {"TooManyDims",
       file_of(one(
                   "\"U8\"",
                   "[1" +
                       [] {
                         std::string s;
                         for (int i = 0; i < 64; ++i) s += ",1";
                         return s;
                       }() +
                       "]",
                   "[0,1]"),
               "x"),
       "more than 64 dims"},
      {"NoShape", file_of(R"({"a":{"dtype":"U8","data_offsets":[0,2]}})", "xx"), "no shape"},
      {"NoDtype", file_of(R"({"a":{"shape":[2],"data_offsets":[0,2]}})", "xx"), "no dtype"},
      {"NoOffsets", file_of(R"({"a":{"shape":[0],"dtype":"U8"}})", ""), "no data_offsets"},
  };
}

class BadFile : public ::testing::TestWithParam<Bad> {};

TEST_P(BadFile, IsRefusedByName) {
  const TemporaryDirectory dir;
  write_file(dir / "f.safetensors", GetParam().bytes);
  const std::string message = message_of(dir / "f.safetensors");
  EXPECT_THAT(message, HasSubstr(dir / "f.safetensors"));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(All, BadFile, ::testing::ValuesIn(bad_files()),
                         [](const auto& info) { return info.param.name; });

TEST(Safetensors, RefusesWhatIsNoFileAndFollowsLinks) {
  const TemporaryDirectory dir;
  EXPECT_THAT(message_of(dir / "absent"), HasSubstr("No such file"));
  EXPECT_THAT(message_of(dir.path()), HasSubstr("directory"));
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(message_of(dir / "fifo"), HasSubstr("regular file"));  // and does not wait
  write_file(dir / "real", file_of("{}", ""));
  std::filesystem::create_symlink(dir / "real", dir / "link");
  EXPECT_EQ(message_of(dir / "link"), "");
}

TEST(Safetensors, AFileCutShortWhileItIsReadIsAnError) {
  const TemporaryDirectory dir;
  write_file(dir / "f", file_of(one("\"U8\"", "[5000]", "[0,5000]"), std::string(5000, 'x')));
  const File file(dir / "f");
  std::filesystem::resize_file(dir / "f", 100);
  std::string bytes(5000, '?');
  try {
    file.read(0, std::as_writable_bytes(std::span(bytes)));
    FAIL() << "read past the end";
  } catch (const CheckpointError& e) {
    EXPECT_THAT(e.what(), HasSubstr("ends at byte 100"));
  }
}

TEST(Safetensors, WritesExactlyTheseBytes) {
  const TemporaryDirectory dir;
  const std::array<uint8_t, 3> small = {7, 8, 9};
  const std::array<float, 2> big = {1.0F, -2.0F};
  const std::vector<Item> items = {{"s\"", DType::kUInt8, {3}, small.data()},
                                   {"b", DType::kFloat32, {1, 2}, big.data()},
                                   {"e", DType::kInt64, {0}, nullptr}};
  write(dir / "f", items, {{"format", "pt"}});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"e":{"dtype":"I64","shape":[0],"data_offsets":[0,0]},)"
      R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
      R"("s\"":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data = {0, 0, '\x80', '\x3f', 0, 0, 0, '\xc0', 7, 8, 9};
  EXPECT_EQ(read_file(dir / "f"), file_of(header, data));
  EXPECT_EQ(files_under(dir.path()), std::set<std::string>{"f"});
}

TEST(Safetensors, WriterRefusesWhatNobodyCouldRead) {
  const TemporaryDirectory dir;
  const uint8_t byte = 1;
  const auto item = [&](std::string name, std::vector<int64_t> shape) {
    return Item{std::move(name), DType::kUInt8, std::move(shape), &byte};
  };
  const auto write_items = [&](std::vector<Item> items) { write(dir / "f", items); };
  EXPECT_THROW(write_items({item("a", {1}), item("a", {1})}), ArgumentError);
  EXPECT_THROW(write_items({item("__metadata__", {1})}), ArgumentError);
  EXPECT_THROW(write_items({item("\xff", {1})}), ArgumentError);
  EXPECT_THROW(write_items({item("a", {-1})}), ArgumentError);
  EXPECT_THROW(write_items({item("a", {int64_t{1} << 62, 8})}), ArgumentError);
  EXPECT_TRUE(files_under(dir.path()).empty());
}

TEST(Safetensors, AFailedWriteLeavesTheOldFileAndNoTemporary) {  // safetensors#762
  const TemporaryDirectory dir;
  const std::vector<float> values(100, 1.0F);
  const std::vector<Item> items = {{"a", DType::kFloat32, {100}, values.data()}};
  std::filesystem::create_directories(dir / "f/in_the_way");
  EXPECT_THROW(write(dir / "f", items), CheckpointError);  // cannot rename over a directory
  EXPECT_TRUE(files_under(dir.path()).empty());
  EXPECT_THROW(write(dir / "none/f", items), CheckpointError);
}

// A mutated file gives a File whose entries can all be read, or CheckpointError; nothing else.
TEST(Safetensors, MutationsGiveAResultOrACheckpointError) {
  const TemporaryDirectory dir;
  const std::string good =
      file_of(R"({"__metadata__":{"format":"pt","n":"1"},"a.b":{"dtype":"F32","shape":[2,3],)"
              R"("data_offsets":[0,24]},"c":{"dtype":"BF16","shape":[],"data_offsets":[24,26]},)"
              R"("\u00e9":{"dtype":"I8","shape":[0,7],"data_offsets":[26,26]}}   )",
              std::string(26, 'x'));
  const std::vector<std::string> pieces = {"0",
                                           "9",
                                           "-",
                                           "[",
                                           "]",
                                           "{",
                                           "}",
                                           ",",
                                           "\"",
                                           ":",
                                           "\\u0061",
                                           "18446744073709551615",
                                           "1e5",
                                           "null",
                                           "F64",
                                           "shape",
                                           std::string(1, '\0'),
                                           "\xff"};
  std::mt19937 random(20240229);
  int accepted = 0;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = good;
    for (size_t n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % bytes.size();
      switch (random() % 5) {
        case 0:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 1:
          bytes.insert(at, pieces[random() % pieces.size()]);
          break;
        case 2:
          bytes.erase(at, 1 + random() % 4);
          break;
        case 3: {
          const size_t from = random() % bytes.size();
          bytes.insert(at, bytes.substr(from, random() % 40));
          break;
        }
        default:
          bytes.resize(at);
      }
      if (bytes.empty()) bytes = "x";
      // Half of the time the length is made to fit again, so that the parser is reached.
      if (bytes.size() > 34 && random() % 2 == 0) {
        const uint64_t length = bytes.size() - 34;
        memcpy(bytes.data(), &length, 8);
      }
    }
    write_file(dir / "f", bytes);
    try {
      const File file(dir / "f");
      for (const Entry& e : file.entries()) read_all(file, e);
      ++accepted;
    } catch (const CheckpointError&) {
    }
  }
  EXPECT_GT(accepted, 20);  // flips in the data, names, metadata
  EXPECT_LT(accepted, 4000);
}

}  // namespace
}  // namespace dtensor::safetensors
