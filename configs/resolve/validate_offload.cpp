#include <algorithm>

#include "base/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

constexpr char kOptimizer[] = "zero_optimization.offload_optimizer";
constexpr char kParam[] = "zero_optimization.offload_param";

void check_optimizer(Context& context, const OffloadOptimizerConfig& optimizer) {
  const int64_t least = 1 + optimizer.pipeline_read + optimizer.pipeline_write;
  if (optimizer.device == RestingPlace::kNvme && optimizer.buffer_count < least) {
    context.complain(
        "{0}.buffer_count: {1} is too small for {0}.pipeline_read {2} and pipeline_write {3}: the "
        "smallest that works is {4}",
        kOptimizer, optimizer.buffer_count, optimizer.pipeline_read, optimizer.pipeline_write,
        least);
  }
}

void check_param(Context& context, const ZeroConfig& zero) {
  const OffloadParamConfig& param = zero.offload_param;
  constexpr int64_t kLeast = 2;  // one in use, one read or written meanwhile
  if (param.device == RestingPlace::kDevice) return;
  if (zero.stage != 3 && !context.keys.is_bad("zero_optimization.stage")) {
    context.complain("{}.device: \"{}\" needs zero_optimization.stage 3, found {}", kParam,
                     name_of(param.device), zero.stage);
  }
  if (param.device == RestingPlace::kNvme && param.buffer_count < kLeast) {
    context.complain("{}.buffer_count: {} is too small: the smallest that works is {}", kParam,
                     param.buffer_count, kLeast);
  }
}

void check_block_size(Context& context, int64_t bytes) {
  constexpr int64_t kAlignment = 4096;
  if (bytes % kAlignment != 0) {
    context.complain("aio.block_size: expected a multiple of {}, found {}; the next one is {}",
                     kAlignment, bytes, (bytes / kAlignment + 1) * kAlignment);
  }
}

// A value other than its default that the device of its section leaves without effect.
void warn_of_idle(Context& context, const std::string& section, RestingPlace device,
                  std::string_view only_nvme) {
  if (device == RestingPlace::kNvme || context.keys.is_bad(section + ".device")) return;
  const auto names = split_values(only_nvme, ' ');
  for (const GivenKey& given : context.keys.given) {
    if (given.key == nullptr || !given.key->path.starts_with(section + ".")) continue;
    const std::string path(given.key->path);
    const std::string name = path.substr(section.size() + 1);
    const auto value = context.keys.values.find(path);
    const bool idle = device == RestingPlace::kDevice ||
                      std::find(names.begin(), names.end(), name) != names.end();
    if (!idle || value == context.keys.values.end() || value->second == "auto") continue;
    if (value->second == own_json(given.key->fallback)) continue;
    context.warn(given.path, "{} {} has no effect: {}.device is \"{}\"", given.path,
                 quoted(value->second), section, name_of(device));
  }
}

// DeepSpeed's rules, but that it keeps bf16 states without offload too; and bf16 masters have been
// updated on the host only, not yet on a GPU.
void check_bf16(Context& context, const Config& config) {
  constexpr char kMasters[] = "bf16.bf16_master_weights_and_grads";
  constexpr char kStates[] = "bf16.bf16_optimizer_states";
  const bool masters = config.optimizer.bf16_masters, states = config.optimizer.bf16_states;
  if (!masters && !states) return;
  const CheckedKeys& keys = context.keys;
  const OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  const auto need = [&](const std::string& path, bool there, const auto& wanted,
                        const auto& found) {
    if (there || keys.is_bad(path)) return;
    context.complain("{}: true needs {} {}, found {}", masters ? kMasters : kStates, path, wanted,
                     found);
  };
  const auto of_optimizer = [](const char* name) { return fmt::format("{}.{}", kOptimizer, name); };
  const bool bf16 = config.precision == Precision::kBf16 ||
                    (!context.facts_known && !keys.get<bool>("bf16.enabled"));  // --bf16 may come
  need("bf16.enabled", bf16, true, fmt::format("a run in {}", name_of(config.precision)));
  need("zero_optimization.stage", config.zero.stage > 0, "1, 2 or 3", config.zero.stage);
  need(of_optimizer("device"), optimizer.device != RestingPlace::kDevice, "\"cpu\" or \"nvme\"",
       "\"none\"");
  need(of_optimizer("ratio"), optimizer.ratio == 1, 1, optimizer.ratio);
  need(of_optimizer("step"), optimizer.step != OffloadOptimizerConfig::Step::kGpu,
       "\"cpu\" or \"auto\"", "\"gpu\"");
  if (!masters) context.complain("{}: true needs {} true, found false", kStates, kMasters);
}

// One line: such sections are often copied whole.
void warn_of_idle_files(Context& context, const ZeroConfig& zero) {
  const auto is_file = [](RestingPlace place) { return place == RestingPlace::kNvme; };
  if (is_file(zero.offload_optimizer.device) || is_file(zero.offload_param.device)) return;
  const auto& given = context.keys.given;
  if (std::any_of(given.begin(), given.end(),
                  [](const GivenKey& key) { return key.path.starts_with("aio."); })) {
    context.warn("aio", "aio has no effect: neither {}.device nor {}.device is \"nvme\"",
                 kOptimizer, kParam);
  }
}

}  // namespace

void check_offload(Context& context, const Config& config) {
  const ZeroConfig& zero = config.zero;
  check_optimizer(context, zero.offload_optimizer);
  check_param(context, zero);
  check_block_size(context, config.aio.block_size);
  check_bf16(context, config);
  warn_of_idle(context, kOptimizer, zero.offload_optimizer.device,
               "nvme_path buffer_count pipeline_read pipeline_write");
  warn_of_idle(context, kParam, zero.offload_param.device,
               "nvme_path buffer_count buffer_size max_in_cpu");
  warn_of_idle_files(context, zero);
}

}  // namespace zeroth::configs
