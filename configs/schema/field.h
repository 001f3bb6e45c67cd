// The field of a key: how its value is read into a member of a Config and printed, by the member's
// type. field<&ZeroConfig::stage>() is the field of config.zero.stage.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "configs/config.h"
#include "configs/schema/enum_names.h"
#include "configs/schema/keys.h"

namespace zeroth::configs {

// Place has the pointers to the parts of a Config, by the part's type. MonitorConfig has two
// places.
struct Place {
  static constexpr auto of(BatchConfig*) { return &Config::batch; }
  static constexpr auto of(LossScaleConfig*) { return &Config::loss_scale; }
  static constexpr auto of(GradientConfig*) { return &Config::gradients; }
  static constexpr auto of(OptimizerConfig*) { return &Config::optimizer; }
  static constexpr auto of(SchedulerConfig*) { return &Config::scheduler; }
  static constexpr auto of(OneCycleConfig*) { return &SchedulerConfig::one_cycle; }
  static constexpr auto of(LrRangeTestConfig*) { return &SchedulerConfig::range_test; }
  static constexpr auto of(ZeroConfig*) { return &Config::zero; }
  static constexpr auto of(OffloadOptimizerConfig*) { return &ZeroConfig::offload_optimizer; }
  static constexpr auto of(OffloadParamConfig*) { return &ZeroConfig::offload_param; }
  static constexpr auto of(LoraConfig*) { return &Config::lora; }
  static constexpr auto of(QuantizationConfig*) { return &Config::quantization; }
  static constexpr auto of(TensorParallelConfig*) { return &Config::tensor_parallel; }
  static constexpr auto of(PipelineConfig*) { return &Config::pipeline; }
  static constexpr auto of(AioConfig*) { return &Config::aio; }
  static constexpr auto of(RecomputeConfig*) { return &Config::recompute; }
  static constexpr auto of(CommsLoggerConfig*) { return &Config::comms_logger; }
  static constexpr auto of(FlopsProfilerConfig*) { return &Config::flops_profiler; }
};

// Returns the part of type `Owner` of a Config. The argument names the type.
template <typename Owner, typename Member>
constexpr auto& part(auto& config, Member Owner::*) {
  if constexpr (std::is_same_v<Owner, Config>) {
    return config;
  } else {
    constexpr auto kPlace = Place::of(static_cast<Owner*>(nullptr));
    return part(config, kPlace).*kPlace;
  }
}

// Returns config.zero.stage for &ZeroConfig::stage. A part with two places needs a pointer to one
// of them before its own member.
template <auto kFirst, auto... kRest>
constexpr auto& member(auto& config) {
  return ((part(config, kFirst).*kFirst).*....*kRest);
}

template <typename T>
constexpr KeyType key_type() {
  if (std::is_same_v<T, bool>) return KeyType::kBool;
  if (std::is_integral_v<T>) return KeyType::kInteger;
  if (std::is_same_v<T, double>) return KeyType::kNumber;
  if (std::is_same_v<T, std::array<double, 2>>) return KeyType::kPair;
  if (std::is_same_v<T, ModuleNames>) return KeyType::kNames;
  if (std::is_same_v<T, std::vector<int64_t>>) return KeyType::kIntegerOrList;
  if (std::is_same_v<T, PatternValues>) return KeyType::kNumberMap;
  return std::is_same_v<T, std::vector<std::string>> ? KeyType::kList : KeyType::kString;
}

// Convert names of modules, for nlohmann's library: null if none are set, the pattern, or the list
// of names. The order and the repetition of names mean nothing: they are sorted and unique.
void to_json(nlohmann::ordered_json& value, const ModuleNames& names);
void from_json(const nlohmann::ordered_json& value, ModuleNames& names);

template <typename T>
nlohmann::ordered_json to_value(const T& member) {
  if constexpr (std::is_enum_v<T>) {
    return to_string(member);
  } else {
    return member;
  }
}
template <typename T>
nlohmann::ordered_json to_value(const std::optional<T>& member) {
  return member ? to_value(*member) : nlohmann::ordered_json();
}

nlohmann::ordered_json to_value(const PatternValues& member);  // an object

template <typename T>
void set_member(const nlohmann::ordered_json& value, T& member) {
  if constexpr (std::is_enum_v<T>) {
    member = parse_enum<T>(value.get<std::string_view>()).value_or(member);
  } else {
    value.get_to(member);
  }
}
template <typename T>
void set_member(const nlohmann::ordered_json& value, std::optional<T>& member) {
  set_member(value, member.emplace());
}
void set_member(const nlohmann::ordered_json& value, PatternValues& member);

// Returns the field of the member to which the pointers lead.
template <auto... kMembers>
constexpr Field field() {
  using Member = std::remove_cvref_t<decltype(member<kMembers...>(std::declval<Config&>()))>;
  return {key_type<Member>(),
          [](const Config& config) { return to_value(member<kMembers...>(config)); },
          [](const nlohmann::ordered_json& value, Config& config) {
            set_member(value, member<kMembers...>(config));
          }};
}

// Returns the field of an integer for which `kSpecial` in a file means `kMeaning`.
template <auto kMember, int64_t kSpecial, int64_t kMeaning>
constexpr Field field_with_special() {
  Field number = field<kMember>();
  number.set = [](const nlohmann::ordered_json& value, Config& config) {
    member<kMember>(config) = value == kSpecial ? kMeaning : value.get<int64_t>();
  };
  return number;
}

// Returns the field of a text or a list that is null in a file if it is empty.
template <auto... kMembers>
constexpr Field null_if_empty() {
  Field text = field<kMembers...>();
  text.get = [](const Config& config) {
    const auto& value = member<kMembers...>(config);
    return value.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(value);
  };
  return text;
}

// Returns a field that is only printed.
constexpr Field print_only(Field field) {
  field.set = nullptr;
  return field;
}

}  // namespace zeroth::configs
