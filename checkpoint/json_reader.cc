#include "dtensor/checkpoint/json_reader.h"

#include <fmt/core.h>

#include <charconv>

#include "dtensor/base/error.h"

namespace dtensor::checkpoint {
namespace {

constexpr size_t kMaxNesting = 64;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void JsonReader::fail(std::string_view what) const {
  throw CheckpointError(
      fmt::format("{}: at byte {}: {}", where_, first_byte_ + static_cast<int64_t>(at_), what));
}

void JsonReader::white_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

char JsonReader::peek() {
  white_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

void JsonReader::expect(char c, std::string_view what) {
  if (peek() != c || at_ == text_.size()) fail(fmt::format("expected {}", what));
  ++at_;
}

void JsonReader::word(std::string_view w) {
  if (text_.substr(at_, w.size()) != w) fail("no JSON value");
  at_ += w.size();
}

JsonReader::Kind JsonReader::kind() {
  switch (peek()) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kText;
    case 't':
      return Kind::kTrue;
    case 'f':
      return Kind::kFalse;
    case 'n':
      return Kind::kNull;
    default:
      if (at_ < text_.size() && (text_[at_] == '-' || is_digit(text_[at_]))) return Kind::kNumber;
      fail(at_ == text_.size() ? "the text ends too early" : "no JSON value");
  }
}

void JsonReader::enter() {
  if (first_.size() == kMaxNesting) fail(fmt::format("nested deeper than {}", kMaxNesting));
  first_.push_back(true);
  ++at_;
}

void JsonReader::enter_object(std::string_view what) {
  if (kind() != Kind::kObject) fail(fmt::format("{} is not an object", what));
  enter();
}

void JsonReader::enter_array(std::string_view what) {
  if (kind() != Kind::kArray) fail(fmt::format("{} is not a list", what));
  enter();
}

bool JsonReader::next_key(std::string& key) {
  if (peek() == '}') {
    ++at_;
    first_.pop_back();
    return false;
  }
  if (!first_.back()) expect(',', "a comma or the end of the object");
  first_.back() = false;
  if (peek() != '"') fail("expected a key");
  key.clear();
  append_text(key);
  expect(':', "a colon");
  return true;
}

bool JsonReader::next_item() {
  if (peek() == ']') {
    ++at_;
    first_.pop_back();
    return false;
  }
  if (!first_.back()) {
    expect(',', "a comma or the end of the list");
    if (peek() == ']') fail("expected a value");
  }
  first_.back() = false;
  return true;
}

std::string JsonReader::text(std::string_view what) {
  if (kind() != Kind::kText) fail(fmt::format("{} is not a text", what));
  std::string out;
  append_text(out);
  return out;
}

std::string JsonReader::file_name(std::string_view what) {
  std::string name = text(what);
  const bool is_plain = !name.empty() && name != "." && name != ".." &&
                        name.find('/') == std::string::npos && name.find('\0') == std::string::npos;
  if (is_plain) return name;
  fail(fmt::format("{} is \"{}\", which is not the plain name of a file in the same directory",
                   what, name));
}

void JsonReader::append_text(std::string& out) {
  ++at_;  // the quote
  while (true) {
    const size_t begin = at_;
    while (at_ < text_.size()) {
      const auto c = static_cast<unsigned char>(text_[at_]);
      if (c == '"' || c == '\\' || c < 0x20 || c >= 0x80) break;
      ++at_;
    }
    out.append(text_.substr(begin, at_ - begin));
    if (at_ == text_.size()) fail("a text has no end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c == '"') {
      ++at_;
      return;
    }
    if (c == '\\') {
      append_escape(out);
    } else if (c >= 0x80) {
      append_utf8(out);
    } else {
      fail(fmt::format("a text has the control character {:#04x}", c));
    }
  }
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  const std::string_view digits = text_.substr(at_, 4);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (digits.size() < 4 || error != std::errc() || end != digits.data() + 4) {
    fail("\\u without four hexadecimal digits");
  }
  at_ += 4;
  return value;
}

void JsonReader::append_escape(std::string& out) {
  constexpr std::string_view kLetters = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  ++at_;
  const char letter = at_ < text_.size() ? text_[at_] : '\0';
  if (const size_t i = kLetters.find(letter); i != std::string_view::npos && letter != '\0') {
    out += kMeanings[i];
    ++at_;
    return;
  }
  if (letter != 'u') fail("no escape of JSON");
  ++at_;
  uint32_t code = hex4();
  if (code >= 0xd800 && code < 0xdc00) {
    if (text_.substr(at_, 2) != "\\u") fail("half a surrogate pair");
    at_ += 2;
    const uint32_t low = hex4();
    if (low < 0xdc00 || low > 0xdfff) fail("half a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    fail("half a surrogate pair");
  }
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

// One character of two to four bytes; by the table of well-formed sequences, Unicode 15,
// section 3.9.
void JsonReader::append_utf8(std::string& out) {
  const auto byte = [&](size_t i) -> uint32_t {
    return at_ + i < text_.size() ? static_cast<unsigned char>(text_[at_ + i]) : 0U;
  };
  const uint32_t lead = byte(0);
  const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  bool good = lead >= 0xc2 && lead <= 0xf4;
  for (size_t i = 1; i < size; ++i) good = good && byte(i) >= 0x80 && byte(i) <= 0xbf;
  good = good && (lead != 0xe0 || byte(1) >= 0xa0) && (lead != 0xed || byte(1) < 0xa0) &&
         (lead != 0xf0 || byte(1) >= 0x90) && (lead != 0xf4 || byte(1) < 0x90);
  if (!good) fail("a text is not UTF-8");
  out.append(text_.substr(at_, size));
  at_ += size;
}

std::string_view JsonReader::number_token() {
  const size_t begin = at_;
  const auto digits = [&] {
    const size_t first = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == first) fail("a number without digits");
  };
  if (text_[at_] == '-') ++at_;
  const size_t first = at_;
  digits();
  if (text_[first] == '0' && at_ > first + 1) fail("a number begins with 0");
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    digits();
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    digits();
  }
  return text_.substr(begin, at_ - begin);
}

int64_t JsonReader::number(std::string_view what) {
  if (kind() != Kind::kNumber) fail(fmt::format("{} is not a whole number", what));
  const std::string_view token = number_token();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
  if (error == std::errc::result_out_of_range) {
    fail(fmt::format("{} is {}, which is beyond int64", what, token.substr(0, 40)));
  }
  if (error != std::errc() || end != token.data() + token.size() || token == "-0") {
    fail(fmt::format("{} is {}, not a whole number", what, token.substr(0, 40)));
  }
  return value;
}

int64_t JsonReader::size(std::string_view what) {
  if (peek() == '-') {
    fail(fmt::format("{} is {}, a negative number, which is no size", what,
                     number_token().substr(0, 40)));
  }
  return number(what);
}

void JsonReader::skip() {
  switch (kind()) {
    case Kind::kObject: {
      enter_object("");
      std::set<std::string> keys;
      std::string key;
      while (next_key(key)) {
        if (!keys.insert(key).second) {
          fail(fmt::format("the key \"{}\" stands twice in one object", key));
        }
        skip();
      }
      return;
    }
    case Kind::kArray:
      enter_array("");
      while (next_item()) skip();
      return;
    case Kind::kText:
      text("");
      return;
    case Kind::kNumber:
      number_token();
      return;
    case Kind::kTrue:
      return word("true");
    case Kind::kFalse:
      return word("false");
    case Kind::kNull:
      return word("null");
  }
}

void JsonReader::finish() {
  white_space();
  if (at_ != text_.size()) fail("something follows the value");
}

int JsonFields::next() {
  while (json_.next_key(key_)) {
    for (size_t i = 0; i < known_.size(); ++i) {
      if (key_ != known_[i]) continue;
      if (has(static_cast<int>(i))) {
        json_.fail(fmt::format("the key \"{}\" stands twice in one object", key_));
      }
      seen_ |= uint64_t{1} << i;
      return static_cast<int>(i);
    }
    if (!unknown_.insert(key_).second) {
      json_.fail(fmt::format("the key \"{}\" stands twice in one object", key_));
    }
    json_.skip();
  }
  return -1;
}

void JsonFields::require(int count) const {
  for (int i = 0; i < count; ++i) {
    if (!has(i)) json_.fail(fmt::format("{} has no {}", what_, known_[static_cast<size_t>(i)]));
  }
}

}  // namespace dtensor::checkpoint
