// Names of the values of a Config's enums, as a ds_config.json and messages spell them.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "configs/config.h"
#include "configs/schema/keys.h"

namespace zeroth::configs {

// EnumNames has the names of an enum's values, in the order of the enum.
struct EnumNames {
  static constexpr std::string_view of(Precision) { return "fp32 fp16 bf16"; }
  static constexpr std::string_view of(GradientConfig::Reduction) { return "mean sum"; }
  static constexpr std::string_view of(OffloadDevice) { return "none cpu nvme"; }
  static constexpr std::string_view of(OffloadOptimizerConfig::UpdateDevice) {
    return "auto cpu gpu";
  }
  static constexpr std::string_view of(OptimizerConfig::Kind) {
    return "AdamW Adam Lion SGD Adagrad Lamb AdamW8bit";
  }
  // No file has the first and the last one.
  static constexpr std::string_view of(SchedulerConfig::Kind) {
    return "constant WarmupLR WarmupDecayLR WarmupCosineLR OneCycle LRRangeTest HuggingFace";
  }
  static constexpr std::string_view of(SchedulerConfig::Warmup) { return "log linear"; }
  static constexpr std::string_view of(PipelineConfig::Schedule) {
    return "1f1b gpipe interleaved zb-h1 zbv breadth-first";
  }
  static constexpr std::string_view of(LogLevel) { return "debug info warning error critical"; }
  static constexpr std::string_view of(LoraConfig::Bias) { return "none all lora_only"; }
  // In a file the first and the last one are truth values.
  static constexpr std::string_view of(LoraConfig::Init) { return "true gaussian false"; }
};

template <typename Enum>
requires requires(Enum value) {
  EnumNames::of(value);
}
std::string_view to_string(Enum value) {
  return split_values(EnumNames::of(value), ' ').at(static_cast<size_t>(value));
}

// Returns the value of that name, or nullopt if the enum has none.
template <typename Enum>
std::optional<Enum> parse_enum(std::string_view name) {
  const auto names = split_values(EnumNames::of(Enum()), ' ');
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

// Parses a dtype; "fp16" and "float16" are equal. The key table accepts no other names.
template <>
inline std::optional<Precision> parse_enum(std::string_view name) {
  if (name.starts_with("b")) return Precision::kBf16;
  return name.ends_with("16") ? Precision::kFp16 : Precision::kFp32;
}

}  // namespace zeroth::configs
