// Resolution of --lr_scheduler_type and --lr_scheduler_kwargs, used if the file has no scheduler.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Type = HfSchedule::Type;
using Json = nlohmann::json;

constexpr std::string_view kFlag = "--lr_scheduler_kwargs";

// Arguments of transformers' get_..._schedule functions and of torch's ReduceLROnPlateau, in the
// order of the types.
constexpr std::array<std::string_view, kHfScheduleNames.size()> kArguments = {
    "",
    "",
    "",
    "num_cycles",
    "num_cycles",
    "lr_end power",
    "timescale",
    "num_cycles min_lr min_lr_rate",
    "num_cycles min_lr min_lr_rate warmup_lr_rate",
    "num_decay_steps num_stable_steps warmup_type decay_type min_lr_ratio num_cycles",
    "mode factor patience threshold threshold_mode cooldown min_lr eps",
};

// ScheduleKwargs reads the flag's arguments and adds an error for each one that is invalid.
class ScheduleKwargs {
 public:
  ScheduleKwargs(Context& context, Type type) : context_(context), type_(type) {
    const std::string& text = context.flags.schedule_kwargs;
    if (text.empty()) return;
    try {
      given_ = parse_json(text, {.name = std::string(kFlag)});
      if (!given_.is_object()) {
        context.add_error("{} {}: expected an object, {{\"num_cycles\": 2}}", kFlag,
                          shortened(text));
        given_ = Json::object();
      }
    } catch (const Error& error) {
      context.add_error("{}", error.what());
    }
  }

  bool has(std::string_view name) const { return value(name) != nullptr; }

  std::optional<double> number(std::string_view name) {
    const Json* const found = value(name);
    if (found == nullptr) return std::nullopt;
    if (found->is_number() && found->get<double>() >= 0) return found->get<double>();
    add_error(name, *found, "a number >= 0");
    return std::nullopt;
  }

  // Each read() sets `member` to an argument that is given and valid.
  void read(std::string_view name, double& member) { member = number(name).value_or(member); }

  void read(std::string_view name, int64_t& member, int64_t min_value = 0) {
    const Json* const found = value(name);
    if (found == nullptr) return;
    const double max_value = 1e15;
    const double given = found->is_number() ? found->get<double>() : max_value + 1;
    if (std::trunc(given) != given || given < static_cast<double>(min_value) || given > max_value) {
      return add_error(name, *found, fmt::format("a whole number >= {}", min_value));
    }
    member = found->get<int64_t>();
  }

  template <typename T, size_t kSize>
  void read(std::string_view name, T& member,
            const std::array<std::pair<std::string_view, T>, kSize>& words) {
    const Json* const found = value(name);
    if (found == nullptr) return;
    std::vector<std::string_view> names;
    for (const auto& [known, meaning] : words) {
      if (*found == known) {
        member = meaning;
        return;
      }
      names.push_back(known);
    }
    add_error(name, *found, fmt::format("one of {}", fmt::join(names, ", ")));
  }

  void missing(std::string_view what) {
    context_.add_error("{}: {} needs {}", kFlag, to_string(type_), what);
  }

  // Adds an error for each argument that the type does not accept.
  void reject_unknown() {
    const std::string_view arguments = kArguments.at(static_cast<size_t>(type_));
    const auto accepted = split_values(arguments, ' ');
    for (const auto& [name, unused] : given_.items()) {
      if (contains_value(arguments, name, ' ')) continue;
      context_.add_error("{}: {} does not accept {}; accepted: {}", kFlag, to_string(type_),
                         shortened(name),
                         arguments.empty() ? "none" : fmt::format("{}", fmt::join(accepted, ", ")));
    }
  }

 private:
  // Returns null if the argument is absent or null itself.
  const Json* value(std::string_view name) const {
    const auto found = given_.find(name);
    return found == given_.end() || found->is_null() ? nullptr : &*found;
  }

  void add_error(std::string_view name, const Json& found, const std::string& expected) {
    context_.add_error("{}: {} must be {}, found {}", kFlag, name, expected, quoted(found));
  }

  Context& context_;
  Type type_;
  Json given_ = Json::object();
};

// Fills the minimum rate from min_lr or from its ratio to `lr`. One of the two is required.
void fill_min_lr(ScheduleKwargs& arguments, double lr, HfSchedule& schedule) {
  const auto min_value = arguments.number("min_lr");
  const auto rate = arguments.number("min_lr_rate");
  if (arguments.has("min_lr") == arguments.has("min_lr_rate")) {
    return arguments.missing("min_lr or min_lr_rate, one of the two");
  }
  schedule.min_lr_rate = min_value ? *min_value / lr : rate.value_or(0);
}

void fill_polynomial(ScheduleKwargs& arguments, Context& context, double lr, HfSchedule& schedule) {
  arguments.read("lr_end", schedule.lr_end);
  arguments.read("power", schedule.power);
  if (!(lr > schedule.lr_end)) {
    context.add_error("{}: lr_end {:g} must be below the rate, {:g}", kFlag, schedule.lr_end, lr);
  }
}

void fill_stable(ScheduleKwargs& arguments, HfSchedule& schedule) {
  arguments.read("num_decay_steps", schedule.decay_steps);
  if (!arguments.has("num_decay_steps")) {
    arguments.missing("num_decay_steps, the number of decay steps at the end");
  }
  schedule.stable_steps = schedule.total_steps - schedule.warmup_steps - schedule.decay_steps;
  arguments.read("num_stable_steps", schedule.stable_steps);
  arguments.read("warmup_type", schedule.warmup_shape, kHfShapeNames);
  arguments.read("decay_type", schedule.decay_shape, kHfShapeNames);
  arguments.read("min_lr_ratio", schedule.min_lr_rate);
}

constexpr std::array<std::pair<std::string_view, bool>, 2> kModes = {
    {{"min", false}, {"max", true}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kThresholdModes = {
    {{"rel", true}, {"abs", false}}};

void fill_plateau(ScheduleKwargs& arguments, Context& context, PlateauConfig& plateau) {
  arguments.read("mode", plateau.greater_is_better, kModes);
  arguments.read("threshold_mode", plateau.relative, kThresholdModes);
  arguments.read("factor", plateau.factor);
  arguments.read("patience", plateau.patience);
  arguments.read("threshold", plateau.threshold);
  arguments.read("cooldown", plateau.cooldown);
  arguments.read("min_lr", plateau.min_lr);
  arguments.read("eps", plateau.eps);
  if (plateau.factor >= 1) {
    context.add_error("{}: factor must be below 1, found {:g}", kFlag, plateau.factor);
  }
  if (context.keys.has("optimizer")) {
    context.add_error(
        "--lr_scheduler_type reduce_lr_on_plateau: not supported with an \"optimizer\" in the "
        "file, where DeepSpeed passes it the batch size after every step instead of a loss: remove "
        "\"optimizer\" from the file, or choose another schedule");
  }
}

void note_no_warmup(Context& context, const HfSchedule& schedule) {
  if (schedule.warmup_steps == 0) return;
  note(context.notes, "--warmup-steps", "{}: no effect: {} does not warm up{}",
       context.flags.warmup_ratio ? "--warmup-ratio" : "--warmup-steps", to_string(schedule.type),
       schedule.type == Type::kConstant ? "; constant_with_warmup does" : "");
}

bool needs_length(Type type, const ScheduleKwargs& arguments) {
  return !(type == Type::kConstant || type == Type::kConstantWithWarmup ||
           type == Type::kInverseSqrt || type == Type::kReduceOnPlateau ||
           (type == Type::kWarmupStableDecay && arguments.has("num_stable_steps")));
}

std::string_view shape_text(HfSchedule::Shape shape) {
  return kHfShapeNames[static_cast<size_t>(shape)].first;
}

// Describes the schedule after the warm-up.
std::string decay_text(const HfSchedule& schedule) {
  const auto to = [&](const std::string& decay) {
    return fmt::format("{} at step {}", decay, schedule.total_steps);
  };
  switch (schedule.type) {
    case Type::kConstant:
    case Type::kConstantWithWarmup:
      return "constant rate";
    case Type::kLinear:
      return to("linear to 0");
    case Type::kCosine:
      return to(schedule.num_cycles == 0.5
                    ? "cosine to 0"
                    : fmt::format("cosine of {:g} waves", schedule.num_cycles));
    case Type::kCosineWithRestarts:
      return to(fmt::format("cosine to 0, {:g} times,", schedule.num_cycles));
    case Type::kPolynomial:
      return to(fmt::format("polynomial of power {:g} to {:g}", schedule.power, schedule.lr_end));
    case Type::kInverseSqrt:
      return fmt::format("inverse square root, timescale {}", schedule.timescale);
    case Type::kCosineWithMinLr:
    case Type::kCosineWarmupWithMinLr:
      return to(fmt::format("cosine to {:g} of the rate", schedule.min_lr_rate));
    case Type::kWarmupStableDecay:
      return fmt::format("constant for {}, then {} to {:g} of the rate over {}",
                         pluralize(schedule.stable_steps, "step"), shape_text(schedule.decay_shape),
                         schedule.min_lr_rate, pluralize(schedule.decay_steps, "step"));
    case Type::kReduceOnPlateau:
      return fmt::format("times {:g} after {} in a row that are no better", schedule.plateau.factor,
                         pluralize(schedule.plateau.patience + 1, "evaluation"));
  }
  return "unknown schedule";
}

}  // namespace

HfSchedule resolve_hf_schedule(Context& context, HfSchedule::Type type, int64_t warmup_steps,
                               double lr) {
  HfSchedule schedule{.type = type,
                      .warmup_steps = warmup_steps,
                      .total_steps = context.facts.total_steps.value_or(0)};
  ScheduleKwargs arguments(context, type);
  const bool length_known = context.facts.total_steps || !context.facts_known;
  if (!length_known && context.flags.schedule && needs_length(type, arguments)) {
    context.add_error("--lr_scheduler_type {}: needs the length of the run: give --steps",
                      to_string(type));
  }
  if (type == Type::kConstant || type == Type::kConstantWithWarmup) {
    if (type == Type::kConstant) note_no_warmup(context, schedule);
    if (!context.flags.schedule_kwargs.empty()) {
      note(context.notes, kFlag, "{}: no effect: {} accepts no arguments", kFlag, to_string(type));
    }
    return schedule;
  }
  if (type == Type::kCosineWithRestarts) schedule.num_cycles = 1;
  arguments.read("num_cycles", schedule.num_cycles);
  switch (type) {
    case Type::kPolynomial:
      fill_polynomial(arguments, context, lr, schedule);
      break;
    case Type::kInverseSqrt:
      if (warmup_steps > 0) schedule.timescale = warmup_steps;
      arguments.read("timescale", schedule.timescale, 1);
      break;
    case Type::kCosineWarmupWithMinLr:
      schedule.warmup_lr_rate = arguments.number("warmup_lr_rate");
      [[fallthrough]];
    case Type::kCosineWithMinLr:
      fill_min_lr(arguments, lr, schedule);
      break;
    case Type::kWarmupStableDecay:
      fill_stable(arguments, schedule);
      break;
    case Type::kReduceOnPlateau:
      fill_plateau(arguments, context, schedule.plateau);
      note_no_warmup(context, schedule);
      break;
    default:
      break;
  }
  arguments.reject_unknown();
  return schedule;
}

std::string hf_text(const HfSchedule& schedule) {
  const std::string decay = decay_text(schedule);
  if (schedule.warmup_steps == 0 || schedule.type == HfSchedule::Type::kReduceOnPlateau) {
    return decay;
  }
  return fmt::format("{} after a {} warm-up over {}", decay, shape_text(schedule.warmup_shape),
                     pluralize(schedule.warmup_steps, "step"));
}

}  // namespace zeroth::configs
