// Resolution of --lr_scheduler_type and --lr_scheduler_kwargs, used if the file has no scheduler.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json/json.h"
#include "base/text/printable.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

using Type = HfSchedule::Type;
using Json = nlohmann::json;

constexpr std::string_view kFlag = "--lr_scheduler_kwargs";

// ScheduleArguments lists the arguments of transformers' get_..._schedule functions and of torch's
// ReduceLROnPlateau.
struct ScheduleArguments {
  Type type;
  std::string_view arguments;
};
constexpr ScheduleArguments kArguments[] = {
    {Type::kConstant, ""},
    {Type::kConstantWithWarmup, ""},
    {Type::kLinear, ""},
    {Type::kCosine, "num_cycles"},
    {Type::kCosineWithRestarts, "num_cycles"},
    {Type::kPolynomial, "lr_end power"},
    {Type::kInverseSqrt, "timescale"},
    {Type::kCosineWithMinLr, "num_cycles min_lr min_lr_rate"},
    {Type::kCosineWarmupWithMinLr, "num_cycles min_lr min_lr_rate warmup_lr_rate"},
    {Type::kWarmupStableDecay,
     "num_decay_steps num_stable_steps warmup_type decay_type min_lr_ratio num_cycles"},
    {Type::kReduceOnPlateau, "mode factor patience threshold threshold_mode cooldown min_lr eps"},
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

  // Reads a number that is at least `min_value`.
  std::optional<double> number(std::string_view name, double min_value = 0) {
    const Json* const found = value(name);
    if (found == nullptr) return std::nullopt;
    if (found->is_number() && found->get<double>() >= min_value) return found->get<double>();
    return add_error<double>(name, *found, fmt::format("a number >= {:g}", min_value));
  }

  std::optional<int64_t> integer(std::string_view name, int64_t min_value) {
    const Json* const found = value(name);
    if (found == nullptr) return std::nullopt;
    const double max_value = 1e15;
    if (found->is_number() && std::trunc(found->get<double>()) == found->get<double>() &&
        found->get<double>() >= static_cast<double>(min_value) &&
        found->get<double>() <= max_value) {
      return found->get<int64_t>();
    }
    return add_error<int64_t>(name, *found, fmt::format("a whole number >= {}", min_value));
  }

  template <typename T, size_t kSize>
  std::optional<T> word(std::string_view name,
                        const std::array<std::pair<std::string_view, T>, kSize>& words) {
    const Json* const found = value(name);
    if (found == nullptr) return std::nullopt;
    std::vector<std::string_view> names;
    for (const auto& [known, meaning] : words) {
      if (*found == known) return meaning;
      names.push_back(known);
    }
    return add_error<T>(name, *found, fmt::format("one of {}", fmt::join(names, ", ")));
  }

  void missing(std::string_view what) {
    context_.add_error("{}: {} needs {}", kFlag, to_string(type_), what);
  }

  // Adds an error for each argument that the type does not accept.
  void reject_unknown() {
    const auto* const row =
        std::find_if(std::begin(kArguments), std::end(kArguments),
                     [&](const ScheduleArguments& takes) { return takes.type == type_; });
    const auto accepted = split_values(row->arguments, ' ');
    for (const auto& [name, unused] : given_.items()) {
      if (contains_value(row->arguments, name, ' ')) continue;
      context_.add_error(
          "{}: {} does not accept {}; accepted: {}", kFlag, to_string(type_), shortened(name),
          row->arguments.empty() ? "none" : fmt::format("{}", fmt::join(accepted, ", ")));
    }
  }

 private:
  // Returns null if the argument is absent or null itself.
  const Json* value(std::string_view name) const {
    const auto found = given_.find(name);
    return found == given_.end() || found->is_null() ? nullptr : &*found;
  }

  template <typename T>
  std::optional<T> add_error(std::string_view name, const Json& found,
                             const std::string& expected) {
    context_.add_error("{}: {} must be {}, found {}", kFlag, name, expected, quoted(found));
    return std::nullopt;
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
  schedule.lr_end = arguments.number("lr_end").value_or(schedule.lr_end);
  schedule.power = arguments.number("power").value_or(schedule.power);
  if (!(lr > schedule.lr_end)) {
    context.add_error("{}: lr_end {:g} must be below the rate, {:g}", kFlag, schedule.lr_end, lr);
  }
}

void fill_stable(ScheduleKwargs& arguments, HfSchedule& schedule) {
  const auto decay = arguments.integer("num_decay_steps", 0);
  if (!arguments.has("num_decay_steps")) {
    arguments.missing("num_decay_steps, the number of decay steps at the end");
  }
  schedule.decay_steps = decay.value_or(0);
  schedule.stable_steps =
      arguments.integer("num_stable_steps", 0)
          .value_or(schedule.total_steps - schedule.warmup_steps - schedule.decay_steps);
  schedule.warmup_shape =
      arguments.word("warmup_type", kHfShapeNames).value_or(schedule.warmup_shape);
  schedule.decay_shape = arguments.word("decay_type", kHfShapeNames).value_or(schedule.decay_shape);
  schedule.min_lr_rate = arguments.number("min_lr_ratio").value_or(schedule.min_lr_rate);
}

constexpr std::array<std::pair<std::string_view, bool>, 2> kModes = {
    {{"min", false}, {"max", true}}};
constexpr std::array<std::pair<std::string_view, bool>, 2> kThresholdModes = {
    {{"rel", true}, {"abs", false}}};

void fill_plateau(ScheduleKwargs& arguments, Context& context, PlateauConfig& plateau) {
  plateau.greater_is_better = arguments.word("mode", kModes).value_or(plateau.greater_is_better);
  plateau.relative = arguments.word("threshold_mode", kThresholdModes).value_or(plateau.relative);
  plateau.factor = arguments.number("factor").value_or(plateau.factor);
  plateau.patience = arguments.integer("patience", 0).value_or(plateau.patience);
  plateau.threshold = arguments.number("threshold").value_or(plateau.threshold);
  plateau.cooldown = arguments.integer("cooldown", 0).value_or(plateau.cooldown);
  plateau.min_lr = arguments.number("min_lr").value_or(plateau.min_lr);
  plateau.eps = arguments.number("eps").value_or(plateau.eps);
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
  schedule.num_cycles =
      arguments.number("num_cycles").value_or(type == Type::kCosineWithRestarts ? 1 : 0.5);
  switch (type) {
    case Type::kPolynomial:
      fill_polynomial(arguments, context, lr, schedule);
      break;
    case Type::kInverseSqrt:
      schedule.timescale = arguments.integer("timescale", 1)
                               .value_or(warmup_steps > 0 ? warmup_steps : schedule.timescale);
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

}  // namespace zeroth::configs
