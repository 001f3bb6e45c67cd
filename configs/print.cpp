#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "base/text/printable.h"
#include "configs/resolve.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Json = nlohmann::ordered_json;

// Returns JSON that any terminal can show. A path may contain bytes that are not UTF-8.
std::string printed(const Json& value) {
  return printable(to_line(value));
}

void print_object(const Json& object, const std::string& path, const Origins& origins,
                  size_t indent, std::string& text) {
  text += "{\n";
  size_t left = object.size();
  for (const auto& [name, value] : object.items()) {
    const std::string inner = path.empty() ? name : path + "." + name;
    const size_t start = text.size();
    text += fmt::format("{:{}}{}: ", "", indent + 2, printed(name));
    if (value.is_object()) {
      print_object(value, inner, origins, indent + 2, text);
    } else {
      text += printed(value);
    }
    if (--left > 0) text += ",";
    if (const auto origin = origins.find(inner); origin != origins.end()) {
      const size_t width = text.size() - start;
      constexpr size_t kColumn = 60;
      text +=
          fmt::format("{:{}}  // {}", "", width < kColumn ? kColumn - width : 0, origin->second);
    }
    text += "\n";
  }
  text += fmt::format("{:{}}}}", "", indent);
}

// Returns the keys of optimizer.params or scheduler.params that a type accepts, in the order in
// which they are printed: that of `params`, except for a few.
std::vector<const ConfigKey*> params_of_type(std::string_view section, std::string_view params) {
  const auto rank = [](std::string_view name) -> ptrdiff_t {
    constexpr std::array<std::string_view, 3> kFirst = {"warmup_num_steps", "warmup_type",
                                                        "total_num_steps"};
    if (name == "weight_decay") return kFirst.size() + 1;  // the last one
    return std::find(kFirst.begin(), kFirst.end(), name) - kFirst.begin();
  };
  std::vector<std::string_view> names = split_values(params, ' ');
  std::stable_sort(names.begin(), names.end(),
                   [&](auto left, auto right) { return rank(left) < rank(right); });
  std::vector<const ConfigKey*> found;
  for (const std::string_view name : names) {
    found.push_back(find_key(fmt::format("{}.{}", section, name)));
  }
  return found;
}

// Moves a section, whose keys are neighbors, before a section or key of the top level.
void move_before(std::vector<const ConfigKey*>& keys, std::string_view section,
                 std::string_view other) {
  const auto is_of = [](std::string_view name) {
    return
        [name](const ConfigKey* key) { return key->path.substr(0, key->path.find('.')) == name; };
  };
  const auto first = std::find_if(keys.begin(), keys.end(), is_of(section));
  const auto last = std::find_if_not(first, keys.end(), is_of(section));
  const auto to = std::find_if(keys.begin(), keys.end(), is_of(other));
  to < first ? std::rotate(to, first, last) : std::rotate(first, last, to);
}

Json json_of(const Config& config) {
  const std::string_view of_scheduler = scheduler_params(config);
  std::vector<const ConfigKey*> printed;
  for (const ConfigKey& key : keys()) {
    if (key.path.ends_with(".params")) {
      const bool optimizer = key.path.starts_with("optimizer");
      const auto params =
          params_of_type(key.path, optimizer ? optimizer_params(config) : of_scheduler);
      printed.insert(printed.end(), params.begin(), params.end());
    } else if (key.path.find(".params.") == std::string_view::npos) {
      printed.push_back(&key);
    }
  }
  move_before(printed, "tensor_parallel", "aio");
  move_before(printed, "activation_checkpointing", "prescale_gradients");
  Json json;
  for (const ConfigKey* const key : printed) {
    if (key->field.get == nullptr) continue;
    std::string pointer = fmt::format("/{}", key->path);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    json[Json::json_pointer(pointer)] = key->field.get(config);
  }
  // A constant rate, and a schedule that only a flag can request, have no type in a file.
  if (of_scheduler.empty()) json.erase("scheduler");
  if (!config.lora.enabled) json.erase("lora");
  if (!config.quantization.nf4_weights) json.erase("quantization");
  return json;
}

// Returns the members that differ from those of `usual`, recursively for objects.
Json without_defaults(const Json& object, const Json& usual) {
  Json kept = Json::object();
  for (const auto& [name, value] : object.items()) {
    const auto other = usual.find(name);
    if (other == usual.end() || !value.is_object()) {
      if (other == usual.end() || value != *other) kept[name] = value;
    } else if (Json inner = without_defaults(value, *other); !inner.empty()) {
      kept[name] = std::move(inner);
    }
  }
  return kept;
}

std::string in_one_line(const Json& value) {
  if (!value.is_object()) return printed(value);
  std::vector<std::string> members;
  for (const auto& [name, member] : value.items()) {
    members.push_back(fmt::format("{}: {}", printed(name), in_one_line(member)));
  }
  return fmt::format("{{{}}}", fmt::join(members, ", "));
}

}  // namespace

std::string to_json(const Config& config, const Origins& origins) {
  std::string text;
  print_object(json_of(config), "", origins, 0, text);
  return text;
}

std::string changed_keys(const Config& before, const Config& after) {
  const Json old = json_of(before), now = json_of(after);
  Config defaults;
  defaults.lora.enabled = after.lora.enabled;
  defaults.quantization.nf4_weights = after.quantization.nf4_weights;
  const Json usual = json_of(defaults);
  std::vector<std::string> keys;
  for (const auto& [name, value] : now.items()) {
    if (old.contains(name) && old[name] == value) continue;
    Json shown = value;
    if (value.is_object()) {
      shown = Json::object();
      if (value.contains("stage")) shown["stage"] = value["stage"];
      shown.update(without_defaults(value, usual.value(name, Json::object())));
    }
    keys.push_back(fmt::format("\"{}\": {}", name, in_one_line(shown)));
  }
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace zeroth::configs
