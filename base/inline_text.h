// InlineText: a text of which kMost characters lie in the object itself: making and copying one
// takes no memory; a longer one does. Reads like a std::string_view of itself.

#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>

namespace dtensor {

template <size_t kMost>
class InlineText {
 public:
  InlineText() = default;
  template <class S>
  requires std::convertible_to<const S&, std::string_view> InlineText(
      const S& text) {  // NOLINT(google-explicit-constructor)
    *this += std::string_view(text);
  }
  InlineText(const InlineText& other) : size_(other.size_), long_(other.long_) {
    std::memcpy(text_.data(), other.text_.data(), size_);
  }
  InlineText& operator=(const InlineText& other) {
    long_ = other.long_;
    size_ = other.size_;
    std::memmove(text_.data(), other.text_.data(), size_);
    return *this;
  }
  ~InlineText() = default;

  InlineText& operator+=(std::string_view more) {
    if (!long_.empty() || more.size() > kMost - size_) {
      if (long_.empty()) long_.assign(text_.data(), size_);
      long_.append(more);
    } else if (!more.empty()) {  // memcpy takes no null, also of length 0
      std::memcpy(text_.data() + size_, more.data(), more.size());
      size_ = static_cast<uint8_t>(size_ + more.size());
    }
    return *this;
  }
  InlineText& operator+=(char c) { return *this += std::string_view(&c, 1); }
  void clear() {
    size_ = 0;
    long_.clear();
  }

  std::string_view view() const {
    return long_.empty() ? std::string_view(text_.data(), size_) : std::string_view(long_);
  }
  operator std::string_view() const { return view(); }          // NOLINT(*-explicit-*)
  operator std::string() const { return std::string(view()); }  // NOLINT(*-explicit-*)
  size_t size() const { return view().size(); }
  bool empty() const { return view().empty(); }
  const char* begin() const { return view().data(); }
  const char* end() const { return view().data() + view().size(); }
  char operator[](size_t i) const { return view()[i]; }
  char& operator[](size_t i) { return long_.empty() ? text_[i] : long_[i]; }
  size_t find(char c) const { return view().find(c); }
  size_t find(std::string_view text) const { return view().find(text); }
  std::string_view substr(size_t at, size_t n = std::string_view::npos) const {
    return view().substr(at, n);
  }

  friend bool operator==(const InlineText& a, const InlineText& b) { return a.view() == b.view(); }
  template <class S>
  requires std::convertible_to<const S&, std::string_view>
  friend bool operator==(const InlineText& a, const S& b) {
    return a.view() == std::string_view(b);
  }
  friend std::string operator+(const InlineText& a, const InlineText& b) {
    return std::string(a.view()) + std::string(b.view());
  }
  template <class S>
  requires std::convertible_to<const S&, std::string_view>
  friend std::string operator+(const InlineText& a, const S& b) {
    return std::string(a.view()).append(std::string_view(b));
  }
  template <class S>
  requires std::convertible_to<const S&, std::string_view>
  friend std::string operator+(const S& a, const InlineText& b) {
    return std::string(std::string_view(a)).append(b.view());
  }
  friend std::ostream& operator<<(std::ostream& out, const InlineText& text) {
    return out << text.view();
  }

 private:
  static_assert(kMost < 256);
  uint8_t size_ = 0;  // of text_
  std::array<char, kMost> text_;
  std::string long_;  // the whole text where it is longer than text_
};

}  // namespace dtensor
