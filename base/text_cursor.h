// TextCursor: reads a short text (a layout, a mesh, a placement) from left to right; what does not
// fit is an ArgumentError that shows the spot.

#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "dtensor/base/error.h"

namespace dtensor {

class TextCursor {
 public:
  // `what` names the text in errors: "layout", "mesh". `text` outlives the cursor.
  TextCursor(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool at_end() const { return at_ == text_.size(); }
  bool sees(char c) const { return !at_end() && text_[at_] == c; }
  bool eat(char c) {
    if (!sees(c)) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!eat(c)) fail(std::string("'") + c + "'");
  }
  void expect_end() const {
    if (!at_end()) fail("the end");
  }
  // A letter or '_', then letters, digits, '_', '-' or '.'.
  std::string_view name(std::string_view expected) {
    size_t end = at_;
    while (end < text_.size() && is_of_name(text_[end], end != at_)) ++end;
    if (end == at_) fail(expected);
    const std::string_view read = text_.substr(at_, end - at_);
    at_ = end;
    return read;
  }
  int64_t number(std::string_view expected) {
    int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto read = std::from_chars(begin, text_.data() + text_.size(), value);
    if (read.ec != std::errc{}) fail(expected);
    at_ += static_cast<size_t>(read.ptr - begin);
    return value;
  }
  [[noreturn]] void fail(std::string_view expected) const {
    throw ArgumentError(std::string(what_) + " \"" + std::string(text_) + "\": expected " +
                        std::string(expected) + " at character " + std::to_string(at_ + 1) +
                        ", found " +
                        (at_end() ? "the end" : "\"" + std::string(text_.substr(at_)) + "\""));
  }

  static bool is_of_name(char c, bool inside) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    return letter || (inside && ((c >= '0' && c <= '9') || c == '-' || c == '.'));
  }

 private:
  std::string_view text_;
  std::string_view what_;
  size_t at_ = 0;
};

}  // namespace dtensor
