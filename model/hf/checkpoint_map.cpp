#include "model/hf/checkpoint_map.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "base/error.h"

namespace zeroth::model {
namespace {

constexpr std::string_view kHead = "head.";
constexpr std::string_view kHeadParameters[] = {"weight", "bias"};

std::string join(std::string_view start, std::string_view end) {
  return std::string(start) += end;
}

// The indices at the '#' of a pattern, and what follows the pattern.
struct Match {
  std::vector<int32_t> indices = {};
  std::string_view rest = {};
};

// Matches a name that begins with the pattern if that ends in '.', and else is the pattern.
std::optional<Match> match(std::string_view name, std::string_view pattern) {
  Match found;
  for (const char c : pattern) {
    if (c != '#') {
      if (!name.starts_with(c)) return std::nullopt;
      name.remove_prefix(1);
      continue;
    }
    int32_t index = -1;
    const auto end = std::from_chars(name.data(), name.data() + name.size(), index).ptr;
    const size_t digits = static_cast<size_t>(end - name.data());
    if (index < 0 || std::to_string(index) != name.substr(0, digits)) return std::nullopt;
    found.indices.push_back(index);
    name.remove_prefix(digits);
  }
  if (pattern.back() != '.' && !name.empty()) return std::nullopt;
  found.rest = name;
  return found;
}

// Returns the name of which match() of the pattern is `found`.
std::string fill(std::string_view pattern, const Match& found) {
  std::string name;
  auto index = found.indices.begin();
  for (const char c : pattern) c == '#' ? name += std::to_string(*index++) : name += c;
  return name += found.rest;
}

std::optional<std::string> rewrite(std::string_view name, std::string_view from,
                                   std::string_view to) {
  const auto found = match(name, from);
  return found ? std::optional(fill(to, *found)) : std::nullopt;
}

std::string_view without_prefix(const Family& family, std::string_view name) {
  std::string_view prefix = family.prefix;
  // Files of the bare base model lack what it is called in the full one.
  if (!name.starts_with(prefix)) prefix.remove_prefix(prefix.find('.') + 1);
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return name;
}

// Returns the shape of a stored tensor with one of `parts` parts of an entry.
std::vector<int64_t> part_shape(const PlannedTensor& parameter, int64_t parts) {
  std::vector<int64_t> shape(parameter.shape.begin() + 1, parameter.shape.end());
  if (parts == 1) return shape;
  ZEROTH_CHECK(shape.at(0) % parts == 0, "{} has entries of {} rows, which are not {} parts",
               parameter.name, shape[0], parts);
  shape[0] /= parts;
  return shape;
}

}  // namespace

std::string stored_name(const Family& family, const std::string& canonical) {
  for (const std::string_view parameter : kHeadParameters)
    if (canonical == join(kHead, parameter)) return join(family.head, parameter);
  for (const std::span<const NamePair> names : {family.names, llama_names()}) {
    for (const NamePair& pair : names) {
      const auto name = rewrite(canonical, pair.canonical, pair.stored);
      if (name) return join(family.prefix, *name);
    }
  }
  ZEROTH_CHECK(false, "no {} checkpoint holds a parameter {}", family.model_type, canonical);
  return {};
}

std::string stored_name(const ModelSpec& spec, const std::string& canonical) {
  return stored_name(family_in_memory(spec), canonical);
}

std::vector<PlannedTensor> stored_tensors(const Family& family, const PlannedTensor& parameter) {
  std::vector<PlannedTensor> tensors;
  for (const StackedName& name : family.stacked) {
    auto found = match(parameter.name, name.canonical);
    if (!found) continue;
    const std::vector<int64_t> shape = part_shape(parameter, name.parts);
    tensors.resize(static_cast<size_t>(parameter.shape[0] * name.parts));
    found->indices.push_back(0);
    int32_t& entry = found->indices.back();
    for (; entry < parameter.shape[0]; ++entry) {
      tensors[static_cast<size_t>(entry * name.parts + name.part)] = {
          join(family.prefix, fill(name.stored, *found)), shape, parameter.keep_in_fp32};
    }
  }
  if (!tensors.empty()) return tensors;
  return {{stored_name(family, parameter.name), parameter.shape, parameter.keep_in_fp32}};
}

std::optional<StoredPiece> stored_piece(const Family& family, const std::string& stored) {
  for (const StackedName& name : family.stacked) {
    const auto found = match(without_prefix(family, stored), name.stored);
    if (!found) continue;
    return StoredPiece{fill(name.canonical, *found),
                       found->indices.back() * name.parts + name.part};
  }
  return std::nullopt;
}

std::optional<std::string> canonical_name(const Family& family, const std::string& stored) {
  for (const std::string_view parameter : kHeadParameters)
    if (stored == join(family.head, parameter)) return join(kHead, parameter);
  for (const std::span<const NamePair> names : {family.names, llama_names()}) {
    for (const NamePair& pair : names) {
      const auto canonical = rewrite(without_prefix(family, stored), pair.stored, pair.canonical);
      if (canonical) return canonical;
    }
  }
  return std::nullopt;
}

std::optional<std::string> canonical_name(const ModelSpec& spec, const std::string& stored) {
  return canonical_name(family_in_files(spec), stored);
}

std::optional<std::string> skipped_prefix(const Family& family, const ModelSpec& spec,
                                          const std::string& stored) {
  for (const std::string_view prefix : family.skipped_prefixes)
    if (stored.starts_with(prefix)) return std::string(prefix);
  const auto layer = match(without_prefix(family, stored), "layers.#.");
  if (!layer) return std::nullopt;
  const int64_t index = layer->indices.front();
  if (index >= spec.num_layers) {
    if (!family.skips_later_layers) return std::nullopt;
    return stored.substr(0, stored.size() - layer->rest.size());
  }
  if (!spec.layer(index).kv_layer) return std::nullopt;
  for (const std::string_view unused : {"self_attn.k_", "self_attn.v_"})
    if (layer->rest.starts_with(unused)) return join("layers.*.", unused);
  return std::nullopt;
}

bool is_ignored_buffer(const Family& family, const std::string& stored) {
  return std::ranges::any_of(family.buffers,
                             [&](std::string_view end) { return stored.ends_with(end); });
}

}  // namespace zeroth::model
