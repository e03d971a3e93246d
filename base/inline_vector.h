// InlineVector: a vector whose first kInline elements lie in the object itself; more go to small
// memory. Elements move without throwing.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "dtensor/base/small_memory.h"

namespace dtensor {

template <class T, size_t kInline>
class InlineVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;

  InlineVector() = default;
  explicit InlineVector(size_t n) { resize(n); }
  InlineVector(std::initializer_list<T> values) { append(values.begin(), values.end()); }
  template <class Iterator>
  requires std::input_iterator<Iterator> InlineVector(Iterator begin, Iterator end) {
    append(begin, end);
  }
  // Of a std::vector whose elements convert.
  template <class U>
  InlineVector(const std::vector<U>& values) {  // NOLINT(google-explicit-constructor)
    append(values.begin(), values.end());
  }
  InlineVector(std::vector<T>&& values) {  // NOLINT(google-explicit-constructor)
    append(std::make_move_iterator(values.begin()), std::make_move_iterator(values.end()));
  }
  InlineVector(const InlineVector& other) { append(other.begin(), other.end()); }
  InlineVector(InlineVector&& other) noexcept { take(other); }
  InlineVector& operator=(const InlineVector& other) {
    if (this != &other) {
      clear();
      append(other.begin(), other.end());
    }
    return *this;
  }
  InlineVector& operator=(InlineVector&& other) noexcept {
    if (this != &other) {
      release();
      take(other);
    }
    return *this;
  }
  ~InlineVector() { release(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return heap_ != nullptr ? heap_ : in_place(); }
  const T* data() const { return const_cast<InlineVector*>(this)->data(); }
  T* begin() { return data(); }
  T* end() { return data() + size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }
  T& operator[](size_t i) { return data()[i]; }
  const T& operator[](size_t i) const { return data()[i]; }
  T& front() { return data()[0]; }
  const T& front() const { return data()[0]; }
  T& back() { return data()[size_ - 1]; }
  const T& back() const { return data()[size_ - 1]; }

  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (size_ == capacity_) return grow(T(std::forward<Arguments>(arguments)...));
    T* made = std::construct_at(data() + size_, std::forward<Arguments>(arguments)...);
    ++size_;
    return *made;
  }
  void push_back(const T& value) { emplace_back(value); }
  void push_back(T&& value) { emplace_back(std::move(value)); }
  void pop_back() { std::destroy_at(data() + --size_); }
  void clear() {
    std::destroy_n(data(), size_);
    size_ = 0;
  }
  void resize(size_t n) {
    while (size_ > n) pop_back();
    while (size_ < n) emplace_back();
  }
  void reserve(size_t n) {
    if (n > capacity_) reallocate(n);
  }
  template <class Iterator>
  void append(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) emplace_back(*begin);
  }

  operator std::vector<T>() const {  // NOLINT(google-explicit-constructor)
    return std::vector<T>(begin(), end());
  }
  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* in_place() { return reinterpret_cast<T*>(buffer_); }

  T& grow(T value) {
    reallocate(2 * capacity_);
    return emplace_back(std::move(value));
  }
  void reallocate(size_t capacity) {
    T* to = static_cast<T*>(small_allocate(capacity * sizeof(T)));
    std::uninitialized_move_n(data(), size_, to);
    std::destroy_n(data(), size_);
    free_heap();
    heap_ = to;
    capacity_ = static_cast<uint32_t>(capacity);
  }
  void free_heap() {
    if (heap_ != nullptr) small_deallocate(heap_, capacity_ * sizeof(T));
    heap_ = nullptr;
    capacity_ = kInline;
  }
  void release() {
    clear();
    free_heap();
  }
  // From empty.
  void take(InlineVector& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    if (other.heap_ != nullptr) {
      heap_ = std::exchange(other.heap_, nullptr);
      capacity_ = std::exchange(other.capacity_, static_cast<uint32_t>(kInline));
      return;
    }
    std::uninitialized_move_n(other.in_place(), size_, in_place());
    std::destroy_n(other.in_place(), size_);
  }

  T* heap_ = nullptr;
  uint32_t size_ = 0;
  uint32_t capacity_ = kInline;
  alignas(T) std::byte buffer_[kInline * sizeof(T)];
};

}  // namespace dtensor
