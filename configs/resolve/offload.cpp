#include <filesystem>

#include "base/error.h"
#include "base/folder.h"
#include "base/json.h"
#include "configs/resolve/context.h"

namespace zeroth::configs {
namespace {

namespace fs = std::filesystem;

RestingPlace place_named(const std::optional<std::string>& name) {
  if (name == "cpu") return RestingPlace::kCpu;
  return name == "nvme" ? RestingPlace::kNvme : RestingPlace::kDevice;
}

// Without links. Empty where it is relative and the working folder is gone. Throws an Error for one
// that cannot be looked at or leads through a link of another user.
std::string absolute(const std::string& given) {
  std::error_code failed;
  const fs::path whole = fs::absolute(given, failed);
  return failed ? "" : resolve_links(whole).string();
}

void tell_of_folder(Context& context, const std::string& path, const std::string& given,
                    const std::string& folder) {
  std::error_code ignored;
  if (folder.empty()) {
    context.complain("{}: {} is relative, and the working folder is gone", path, given);
  } else if (!fs::exists(folder, ignored)) {
    context.note(path, "{}: {} does not exist and will be made", path, folder);
  } else if (!fs::is_directory(folder, ignored)) {
    context.complain("{}: {} is a file, expected a folder", path, folder);
  } else if (!fs::path(given).is_absolute()) {
    context.note(path, "{}: {} is {}", path, given, folder);
  }
}

// Absolute, so that it is one folder wherever a rank works.
std::string read_folder(Context& context, const std::string& section, RestingPlace device) {
  const std::string path = section + ".nvme_path";
  const auto& values = context.keys.values;
  const auto found = values.find(path);
  const std::string given = context.keys.get<std::string>(path).value_or("");
  const bool used = device == RestingPlace::kNvme && !context.keys.is_bad(path);
  if (given.empty()) {
    if (used) {
      context.complain("{}.device: \"nvme\" needs {}, a folder on the disk to be used, found {}",
                       section, path, found == values.end() ? "null" : quoted(found->second));
    }
    return {};
  }
  try {
    const std::string folder = absolute(given);
    if (used) tell_of_folder(context, path, given, folder);
    return folder;
  } catch (const Error& error) {
    if (used) context.complain("{}: {}", path, error.what());
    return {};
  }
}

// What both sections say in the same words.
template <typename Section>
void read_section(Context& context, const std::string& path, Section& section) {
  section.device = place_named(context.keys.get<std::string>(path + ".device"));
  section.nvme_path = read_folder(context, path, section.device);
  context.read(path + ".pin_memory", section.pin_memory);
  context.read(path + ".buffer_count", section.buffer_count);
}

}  // namespace

const char* name_of(RestingPlace place) {
  switch (place) {
    case RestingPlace::kCpu:
      return "cpu";
    case RestingPlace::kNvme:
      return "nvme";
    case RestingPlace::kDevice:
      break;
  }
  return "none";
}

void fill_offload(Context& context, Config& config) {
  OffloadOptimizerConfig& optimizer = config.zero.offload_optimizer;
  read_section(context, "zero_optimization.offload_optimizer", optimizer);
  context.read("zero_optimization.offload_optimizer.pipeline_read", optimizer.pipeline_read);
  context.read("zero_optimization.offload_optimizer.pipeline_write", optimizer.pipeline_write);
  context.read("zero_optimization.offload_optimizer.ratio", optimizer.ratio);
  using Step = OffloadOptimizerConfig::Step;
  const auto step = context.keys.get<std::string>("zero_optimization.offload_optimizer.step");
  if (step) optimizer.step = step == "gpu" ? Step::kGpu : Step::kCpu;

  OffloadParamConfig& param = config.zero.offload_param;
  read_section(context, "zero_optimization.offload_param", param);
  context.read("zero_optimization.offload_param.buffer_size", param.buffer_size_elements);
  context.read("zero_optimization.offload_param.max_in_cpu", param.max_in_cpu_elements);

  context.read("aio.block_size", config.aio.block_size);
  context.read("aio.queue_depth", config.aio.queue_depth);
  context.read("aio.intra_op_parallelism", config.aio.threads);
  context.read("bf16.bf16_optimizer_states", config.optimizer.bf16_states);
  context.read("bf16.bf16_master_weights_and_grads", config.optimizer.bf16_masters);
}

}  // namespace zeroth::configs
