#include "checkpoint/foreign.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text/printable.h"
#include "base/text/units.h"
#include "checkpoint/manifest.h"
#include "checkpoint/names.h"

namespace zeroth::checkpoint {
namespace {

constexpr std::string_view kDeepSpeed = "DeepSpeed";
constexpr std::string_view kTrainer = "Hugging Face's Trainer";
constexpr std::string_view kPyTorch = "PyTorch (torch.distributed.checkpoint, FSDP)";

using Kind = DirectoryEntry::Kind;

// A ForeignMarker matches a file or directory of another program with this prefix and suffix, and a
// number between them if `numbered`. `beside` is a name that must exist as well. The first row that
// matches decides.
struct ForeignMarker {
  std::string_view prefix, suffix, program;
  Kind kind = Kind::kFile;
  bool numbered = false;
  std::string_view beside = "";
};
constexpr ForeignMarker kMarkers[] = {
    {"global_step", "", kDeepSpeed, Kind::kDirectory, true},
    {"", "_optim_states.pt", kDeepSpeed},
    {"", "_model_states.pt", kDeepSpeed},
    {"zero_to_fp32.py", "", kDeepSpeed, Kind::kFile, false, kLatest},
    {"", ".distcp", kPyTorch},
    {"pytorch_model_fsdp_", "", kPyTorch, Kind::kDirectory, true},
    {"iter_", "", "Megatron-LM", Kind::kDirectory, true},
    {"latest_checkpointed_iteration.txt", "", "Megatron-LM"},
    {"optimizer.pt", "", kTrainer},
    {"scheduler.pt", "", kTrainer},
    {"rng_state", ".pth", kTrainer},
    {"random_states_", ".pkl", "Accelerate", Kind::kFile, true},
    {"optimizer.bin", "", "Accelerate"},
    {"epoch=", ".ckpt", "PyTorch Lightning"},
};

bool matches(const DirectoryEntry& entry, const ForeignMarker& marker) {
  std::string_view name = entry.name;
  if (entry.kind != marker.kind || name.size() < marker.prefix.size() + marker.suffix.size() ||
      !name.starts_with(marker.prefix) || !name.ends_with(marker.suffix)) {
    return false;
  }
  name.remove_prefix(marker.prefix.size());
  name.remove_suffix(marker.suffix.size());
  return !marker.numbered || parse_number<uint64_t>(name);
}

}  // namespace

std::optional<ForeignCheckpoint> find_foreign(FileSystem& file_system,
                                              const std::string& directory) {
  const std::vector<DirectoryEntry> entries = file_system.list(directory);
  const auto exists = [&](std::string_view name) {
    return std::any_of(entries.begin(), entries.end(),
                       [&](const DirectoryEntry& entry) { return entry.name == name; });
  };
  if (exists(kChunkDirectory)) return std::nullopt;
  for (const ForeignMarker& marker : kMarkers) {
    if (!marker.beside.empty() && !exists(marker.beside)) continue;
    const auto found =
        std::find_if(entries.begin(), entries.end(),
                     [&](const DirectoryEntry& entry) { return matches(entry, marker); });
    if (found == entries.end()) continue;
    ForeignCheckpoint foreign{std::string(marker.program), found->name};
    if (marker.program == kDeepSpeed && exists("trainer_state.json")) {
      foreign.program = fmt::format("{} with {}", kTrainer, kDeepSpeed);
    }
    foreign.has_model =
        exists("config.json") &&
        std::any_of(entries.begin(), entries.end(), [](const DirectoryEntry& entry) {
          return entry.name.ends_with(".safetensors");
        });
    return foreign;
  }
  return std::nullopt;
}

std::string describe(const ForeignCheckpoint& foreign, const std::filesystem::path& path) {
  return fmt::format(
      "{} is a checkpoint of {} (it contains {}), whose states are not supported: a run cannot "
      "resume from it. {}",
      path.string(), foreign.program, shortened(foreign.marker),
      foreign.has_model
          ? fmt::format("--model {} starts from its weights", path.string())
          : fmt::format("Convert its weights to a folder with config.json and safetensors{}, and "
                        "start from it with --model",
                        foreign.program.ends_with(kDeepSpeed)
                            ? " (DeepSpeed's own zero_to_fp32.py, with --safe_serialization)"
                            : ""));
}

}  // namespace zeroth::checkpoint
