// JsonReader: reads JSON that is not trusted from front to back, value by value, without making a
// tree of it: a header or a record of 100 MB takes no memory beside what is kept of it.
// Strict: what is no JSON by RFC 8259, no UTF-8, or nested deeper than 64 is refused. Internal.

#pragma once

#include <cstdint>
#include <initializer_list>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dtensor::checkpoint {

class JsonReader {
 public:
  // `where` stands in front of every message: "FILE: header". Positions in messages count from
  // `first_byte`. The text outlives the reader.
  JsonReader(std::string_view text, std::string where, int64_t first_byte = 0)
      : text_(text), where_(std::move(where)), first_byte_(first_byte) {}

  enum class Kind : uint8_t { kObject, kArray, kText, kNumber, kTrue, kFalse, kNull };
  Kind kind();  // of the value that comes next

  // CheckpointError naming `what` where the next value is of another kind.
  void enter_object(std::string_view what);
  // The next key, unescaped; false at the end of the object, which is then left. Whether a key was
  // there before is for the caller to see, or JsonFields.
  bool next_key(std::string& key);
  void enter_array(std::string_view what);
  bool next_item();  // false at the end, which is then left

  std::string text(std::string_view what);
  // A text that names another file beside the one that is read: not empty, "." or "..", and without
  // a slash.
  std::string file_name(std::string_view what);
  // A whole number within int64.
  int64_t number(std::string_view what);
  // The same, not negative.
  int64_t size(std::string_view what);
  // A value of any kind. Keys given twice inside are refused.
  void skip();
  // Nothing but white space may follow.
  void finish();

  [[noreturn]] void fail(std::string_view what) const;

 private:
  void white_space();
  char peek();  // '\0' at the end
  void expect(char c, std::string_view what);
  void word(std::string_view w);
  void append_text(std::string& out);
  void append_escape(std::string& out);
  void append_utf8(std::string& out);
  uint32_t hex4();
  std::string_view number_token();
  void enter();

  std::string_view text_;
  std::string where_;
  int64_t first_byte_;
  size_t at_ = 0;
  std::vector<bool> first_;  // of every open object or array: is nothing read of it yet?
};

// The fields of an object. Unknown ones are skipped, and none may be given twice.
class JsonFields {
 public:
  // Enters the object. `known` and `what` outlive this.
  JsonFields(JsonReader& json, std::string_view what, std::span<const std::string_view> known)
      : json_(json), what_(what), known_(known) {
    json_.enter_object(what);
  }

  // The index of the next field in `known`; -1 at the end.
  int next();
  bool has(int field) const { return (seen_ >> field & 1U) != 0; }
  // CheckpointError where one of the first `count` fields of `known` was not given.
  void require(int count) const;

 private:
  JsonReader& json_;
  std::string_view what_;
  std::span<const std::string_view> known_;
  uint64_t seen_ = 0;
  std::string key_;
  std::set<std::string> unknown_;
};

}  // namespace dtensor::checkpoint
