#include "dtensor/ops/rule_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dtensor::ops {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9fb21c651e98df25U;
  return hash ^ (hash >> 29);
}

uint64_t mix(uint64_t hash, std::string_view text) {
  while (text.size() >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, text.data(), 8);
    hash = mix(hash, word);
    text.remove_prefix(8);
  }
  uint64_t rest = text.size();
  for (const char c : text) rest = (rest << 8) | static_cast<unsigned char>(c);
  return mix(hash, rest);
}

uint64_t hash_of(const RuleUse& use, auto specs) {
  uint64_t hash = use.allow_communicating ? 1 : 2;
  hash = use.lasting ? mix(hash, reinterpret_cast<uintptr_t>(&use.rule))
                     : mix(mix(hash, use.rule.op.view()), use.rule.letters.view());
  for (size_t i = 0; i < specs.size(); ++i) {
    hash = mix(hash, reinterpret_cast<uintptr_t>(specs[i]));
  }
  return hash;
}

uint64_t with_lengths(uint64_t hash, const Shape& shape) {
  for (const int64_t n : shape) hash = mix(hash, static_cast<uint64_t>(n));
  return hash;
}

// All that a result depends on, but for the lengths of made letters.
bool same_rule(const Rule& a, const Rule& b) {
  return a.letters == b.letters && a.op == b.op && a.uncut == b.uncut && a.linear == b.linear &&
         a.reduce == b.reduce && a.communicating == b.communicating && a.reduced == b.reduced;
}

using Ids = InlineVector<const void*, 8>;

}  // namespace

CachedRow::Source CachedRow::source_of(const RuleLetters& letters, char letter) {
  for (size_t i = 0; i < letters.in.size(); ++i) {
    const size_t d = letters.in[i].find(letter);
    if (d != std::string_view::npos) return {static_cast<int32_t>(i), static_cast<char>(d)};
  }
  return {-1, letter};
}

CachedRow::CachedRow(const Rule& rule, std::span<const Layout> in, const RuleResult& result) {
  const RuleLetters letters = parse_letters(rule);
  for (size_t i = 0; i < in.size(); ++i) {
    in_.push_back(result.in[i].spec());
    moves_ = moves_ || result.in[i].spec().id() != in[i].spec().id();
    for (size_t d = 0; d < letters.in[i].size(); ++d) {
      const Source here{static_cast<int32_t>(i), static_cast<char>(d)};
      const Source first = source_of(letters, letters.in[i][d]);
      if (first.input != here.input || first.dim != here.dim) equal_.push_back({first, here});
    }
  }
  for (size_t o = 0; o < letters.out.size(); ++o) {
    Output& out = out_.emplace_back();
    out.spec = result.out[o].spec();
    for (const char letter : letters.out[o]) out.lengths.push_back(source_of(letters, letter));
  }
}

template <class ShapeOf>
Shape CachedRow::shape(size_t output, const Rule& rule, const ShapeOf& shape_of) const {
  Shape shape;
  for (const Source& s : out_[output].lengths) {
    if (s.input >= 0) {
      shape.push_back(shape_of(static_cast<size_t>(s.input))[s.dim]);
      continue;
    }
    for (const MadeLetter& made : rule.made) {
      if (made.letter == s.dim) shape.push_back(made.size);
    }
  }
  return shape;
}

Layout CachedRow::out(size_t output, const Rule& rule, std::span<const DTensor> inputs) const {
  const auto global = [&](size_t i) -> const Shape& { return inputs[i].shape(); };
  return Layout(out_[output].spec, shape(output, rule, global));
}

Shape CachedRow::local_shape(size_t output, const Rule& rule,
                             std::span<const DTensor> inputs) const {
  const auto local = [&](size_t i) -> const Shape& { return inputs[i].local_tensor().shape(); };
  return shape(output, rule, local);
}

bool CachedRow::fits(std::span<const DTensor> inputs) const {
  const auto length = [&](const Source& s) {
    return inputs[static_cast<size_t>(s.input)].shape()[s.dim];
  };
  return std::ranges::all_of(equal_, [&](const Equal& e) { return length(e.a) == length(e.b); });
}

template <class Same>
const std::unique_ptr<RuleCache::Entry>& RuleCache::at(uint64_t hash, const Same& same) const {
  size_t place = hash % kPlaces;
  while (table_[place] != nullptr && !(table_[place]->hash == hash && same(*table_[place]))) {
    place = (place + 1) % kPlaces;
  }
  return table_[place];
}

bool RuleCache::Entry::is_of(const RuleUse& use) const {
  return allow == use.allow_communicating && lasting == use.lasting_rule() &&
         (use.lasting || same_rule(rule, use.rule));
}

const CachedRow* RuleCache::find(const RuleUse& use, std::span<const DTensor> inputs) const {
  Ids ids;
  for (const DTensor& x : inputs) ids.push_back(x.spec().id());
  const auto same_specs = [&](const Entry& e) {
    return e.is_of(use) && std::ranges::equal(e.specs, ids, {}, &Spec::id);
  };
  uint64_t hash = hash_of(use, ids);
  const Entry* entry =
      at(hash, [&](const Entry& e) { return e.lengths.empty() && same_specs(e); }).get();
  if (entry != nullptr && entry->by_lengths) {
    for (const DTensor& x : inputs) hash = with_lengths(hash, x.shape());
    entry =
        at(hash, [&](const Entry& e) {
          return std::ranges::equal(e.lengths, inputs, {}, {}, &DTensor::shape) && same_specs(e);
        }).get();
  }
  if (entry == nullptr || !entry->row->fits(inputs)) return nullptr;
  return entry->row.get();
}

void RuleCache::put(std::unique_ptr<Entry> entry) {
  const auto& place = at(entry->hash, [&](const Entry& e) {
    return e.lengths == entry->lengths && e.specs == entry->specs && e.allow == entry->allow &&
           e.lasting == entry->lasting && same_rule(e.rule, entry->rule);
  });
  if (place == nullptr) ++size_;
  table_[static_cast<size_t>(&place - table_.data())] = std::move(entry);
}

void RuleCache::keep(const RuleUse& use, std::span<const Layout> in, const RuleResult& result) {
  if (static_cast<size_t>(size_) + 2 > kPlaces / 2) {
    for (auto& entry : table_) entry = nullptr;
    size_ = 0;
  }
  Ids ids;
  for (const Layout& x : in) ids.push_back(x.spec().id());
  auto entry = std::make_unique<Entry>(Entry{.hash = hash_of(use, ids),
                                             .lasting = use.lasting_rule(),
                                             .rule = use.lasting ? Rule{} : use.rule,
                                             .allow = use.allow_communicating,
                                             .specs = {},
                                             .by_lengths = result.by_lengths,
                                             .lengths = {},
                                             .row = nullptr});
  for (const Layout& x : in) entry->specs.push_back(x.spec());
  if (result.by_lengths) {
    auto marker = std::make_unique<Entry>(Entry{.hash = entry->hash,
                                                .lasting = entry->lasting,
                                                .rule = entry->rule,
                                                .allow = entry->allow,
                                                .specs = entry->specs,
                                                .by_lengths = true,
                                                .lengths = {},
                                                .row = nullptr});
    for (const Layout& x : in) {
      entry->hash = with_lengths(entry->hash, x.shape());
      entry->lengths.push_back(x.shape());
    }
    put(std::move(marker));
  }
  entry->row = std::make_unique<CachedRow>(use.rule, in, result);
  put(std::move(entry));
}

}  // namespace dtensor::ops
