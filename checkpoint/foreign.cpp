#include "checkpoint/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "base/units.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

constexpr std::string_view kDeepSpeed = "DeepSpeed";
constexpr std::string_view kTrainer = "Hugging Face's Trainer";
constexpr std::string_view kPyTorch = "PyTorch (torch.distributed.checkpoint, FSDP)";

using Kind = Entry::Kind;

// A file or folder with such a prefix and suffix, and a number between them where one is expected,
// belongs to another program. `beside`: only where this name is there, too. The first row that
// matches decides.
struct Mark {
  std::string_view prefix, suffix, program;
  Kind kind = Kind::kFile;
  bool numbered = false;
  std::string_view beside = "";
};
constexpr Mark kMarks[] = {
    {"global_step", "", kDeepSpeed, Kind::kFolder, true},
    {"", "_optim_states.pt", kDeepSpeed},
    {"", "_model_states.pt", kDeepSpeed},
    {"zero_to_fp32.py", "", kDeepSpeed, Kind::kFile, false, kLatest},
    {"", ".distcp", kPyTorch},
    {"pytorch_model_fsdp_", "", kPyTorch, Kind::kFolder, true},
    {"iter_", "", "Megatron-LM", Kind::kFolder, true},
    {"latest_checkpointed_iteration.txt", "", "Megatron-LM"},
    {"optimizer.pt", "", kTrainer},
    {"scheduler.pt", "", kTrainer},
    {"rng_state", ".pth", kTrainer},
    {"random_states_", ".pkl", "Accelerate", Kind::kFile, true},
    {"optimizer.bin", "", "Accelerate"},
    {"epoch=", ".ckpt", "PyTorch Lightning"},
};

bool matches(const Entry& entry, const Mark& mark) {
  std::string_view name = entry.name;
  if (entry.kind != mark.kind || name.size() < mark.prefix.size() + mark.suffix.size() ||
      !name.starts_with(mark.prefix) || !name.ends_with(mark.suffix)) {
    return false;
  }
  name.remove_prefix(mark.prefix.size());
  name.remove_suffix(mark.suffix.size());
  return !mark.numbered || parse_number<uint64_t>(name);
}

}  // namespace

std::optional<Foreign> find_foreign(Disk& disk, const std::string& folder) {
  const std::vector<Entry> entries = disk.list(folder);
  const auto holds = [&](std::string_view name) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const Entry& entry) { return entry.name == name; });
  };
  if (holds(kPieceFolder)) return std::nullopt;
  for (const Mark& mark : kMarks) {
    if (!mark.beside.empty() && !holds(mark.beside)) continue;
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return matches(entry, mark); });
    if (found == entries.end()) continue;
    Foreign foreign{std::string(mark.program), found->name};
    if (mark.program == kDeepSpeed && holds("trainer_state.json")) {
      foreign.program = fmt::format("{} with {}", kTrainer, kDeepSpeed);
    }
    foreign.has_model =
        holds("config.json") && std::any_of(entries.begin(), entries.end(), [](const Entry& entry) {
          return entry.name.ends_with(".safetensors");
        });
    return foreign;
  }
  return std::nullopt;
}

std::string describe(const Foreign& foreign, const std::filesystem::path& path) {
  return fmt::format(
      "{} is a checkpoint of {} ({} is in it), whose states are not read: no run goes on from it. "
      "{}",
      path.string(), foreign.program, shortened(foreign.mark),
      foreign.has_model
          ? fmt::format("--model {} begins anew from its weights", path.string())
          : fmt::format("Convert its weights to a folder with config.json and safetensors{}, from "
                        "which --model begins anew",
                        foreign.program.ends_with(kDeepSpeed)
                            ? " (DeepSpeed's own zero_to_fp32.py, with --safe_serialization)"
                            : ""));
}

}  // namespace zeroth::checkpoint
