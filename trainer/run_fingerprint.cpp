#include "trainer/run_fingerprint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/files/crc32c.h"
#include "base/files/regular_file.h"
#include "base/json/json.h"
#include "base/machine/cpu.h"
#include "base/machine/file_descriptor.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"
#include "base/text/units.h"
#include "configs/resolve.h"
#include "configs/schema/keys.h"
#include "model/hf/safetensors.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;
using checkpoint::StringMap;
using Json = nlohmann::ordered_json;

constexpr int64_t kNumParts = 1024;
constexpr int64_t kPartBytes = int64_t{64} << 10;

// Keys of config.json without effect on what is trained.
constexpr std::string_view kIgnoredModelKeys[] = {"torch_dtype", "dtype", "transformers_version",
                                                  "use_cache"};

constexpr char kDataVersion[] = "data.version";

void add_model(const ResolvedRun& run, StringMap& must_equal) {
  const std::string path = (fs::path(run.flags.model) / "config.json").string();
  Json config = parse_ordered_json(read_file(path, kConfigLimits.bytes),
                                   {.name = path, .limits = kConfigLimits});
  for (const std::string_view key : kIgnoredModelKeys) config.erase(std::string(key));
  for (auto item = config.begin(); item != config.end();) {
    item = item.key().starts_with('_') ? config.erase(item) : std::next(item);
  }
  for (const FlatValue& value : flat_values(config, "model")) {
    must_equal[printable(value.path)] = printable(value.text);
  }
  must_equal["dropout"] = run.config.dropout ? fmt::format("{}", *run.config.dropout) : "model's";
}

// Adds every byte of the base's weights: a resumed adapter belongs to them alone.
void add_base(const ResolvedRun& run, StringMap& must_equal) {
  if (!run.adapter || !model::has_weights(run.flags.model)) return;
  std::set<fs::path> files;
  const model::SafetensorsDirectory weights(run.flags.model);
  for (const auto& [name, entry] : weights.entries()) files.insert(entry.file->path());
  FileDigest all;
  for (const fs::path& path : files) {
    const FileDigest own = digest_file(path, std::numeric_limits<int64_t>::max());
    all.bytes += own.bytes;
    all.crc = crc32c_combine(all.crc, own.crc, static_cast<uint64_t>(own.bytes));
  }
  must_equal["model.weights"] = fmt::format("{} bytes, CRC32C {}", all.bytes, format_crc(all.crc));
}

void add_data(const ResolvedRun& run, StringMap& must_equal) {
  const Flags& flags = run.flags;
  FileDigest digest;
  for (const OpenedFile& file : run.samples.train_files) {
    const FileDigest own = digest_file(file.path);
    digest.bytes += own.bytes;
    digest.crc = crc32c_combine(digest.crc, own.crc, static_cast<uint64_t>(own.bytes));
  }
  must_equal["data.bytes"] = fmt::format("{}", digest.bytes);
  must_equal["data.crc32c"] = format_crc(digest.crc);
  if (run.samples.mixture) {
    std::vector<double> weights;
    for (const data::MixturePart& part : run.samples.mixture->parts())
      weights.push_back(part.weight);
    must_equal["data.weights"] = fmt::format("{}", fmt::join(weights, " "));
  }
  if (flags.group_by_length)
    must_equal["data.length_groups"] = fmt::format("of batches of {}", run.global_batch());
  if (flags.val_split) must_equal["data.val_split"] = fmt::format("{}", *flags.val_split);
  if (flags.on_long != data::OnLong::kCut)
    must_equal["data.on_long"] = flags.on_long == data::OnLong::kDrop ? "drop" : "split";
  must_equal["data.samples"] = fmt::format("{}", run.samples.train_size());
  must_equal["data.positions"] = fmt::format("{}", run.samples.seq_len);
  must_equal["data.shuffled"] = flags.shuffle ? "yes" : "no";
  if (run.samples.version == 1) {  // from the flags, whatever the file has
    must_equal["data.fields"] = printable(fmt::format("{}|{}|{}", flags.records.prompt_field,
                                                      flags.records.separator.value_or(""),
                                                      flags.records.completion_field));
    must_equal["data.long_text"] = flags.long_text == data::LongText::kChunk ? "chunk" : "cut";
  } else {
    const data::DatasetStats stats = run.samples.train->stats();
    must_equal[kDataVersion] = fmt::format("{}", run.samples.version);
    must_equal["data.fields"] = printable(stats.fields);
    must_equal["data.long_text"] = stats.chunked ? "chunk" : "cut";
  }
  must_equal["seed"] = fmt::format("{}", run.config.seed);
  const auto tokenizer = fs::path(flags.model) / "tokenizer.json";
  const bool has_text = std::ranges::any_of(run.samples.train_files, [](const OpenedFile& file) {
    return fs::path(file.path).extension() != ".bin";
  });
  if (has_text && fs::exists(tokenizer)) {
    must_equal["tokenizer.crc32c"] = format_crc(digest_file(tokenizer).crc);
  }
}

// Adds what no key of a file determines.
void add_update(const ResolvedRun& run, StringMap& must_equal) {
  configs::SchedulerConfig scheduler = run.config.scheduler;
  must_equal["loss_mean"] =
      run.config.loss_mean == configs::LossMean::kToken ? "token" : "micro-batch";
  must_equal["optimizer.decays_vectors"] = run.config.optimizer.no_decay ? "no" : "yes";
  if (!scheduler.is_hugging_face()) return;
  scheduler.hf.total_steps = 0;
  must_equal["scheduler"] = schedule_text(scheduler);
}

}  // namespace

FileDigest digest_file(const fs::path& path, int64_t max_full_bytes) {
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (fd.get() < 0 || ::fstat(fd.get(), &status) != 0) {
    throw Error("{} cannot be read: {}", path.string(), system_reason(errno));
  }
  if (!S_ISREG(status.st_mode)) throw Error("{} is not a regular file", path.string());
  FileDigest digest{.bytes = status.st_size};
  std::vector<char> buffer(static_cast<size_t>(std::min(kPartBytes, digest.bytes)));
  const bool whole = digest.bytes <= max_full_bytes;
  const int64_t parts = whole ? (digest.bytes + kPartBytes - 1) / kPartBytes : kNumParts;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin =
        whole ? i * kPartBytes : (digest.bytes - kPartBytes) / (kNumParts - 1) * i;
    const bool last = i + 1 == parts;
    const int64_t first = last && !whole ? digest.bytes - kPartBytes : begin;
    const auto size = static_cast<size_t>(std::min(kPartBytes, digest.bytes - first));
    const std::span<char> part = std::span(buffer).first(size);
    read_exactly(fd.get(), part, first, path);
    digest.crc = crc32c(std::string_view(part.data(), part.size()), digest.crc);
  }
  return digest;
}

RunFingerprint compute_fingerprint(const ResolvedRun& run) {
  RunFingerprint fingerprint;
  for (const FlatValue& value : flat_values(parse_trusted_json(configs::to_json(run.config)))) {
    auto& values =
        configs::must_equal_on_resume(value.path) ? fingerprint.must_equal : fingerprint.may_change;
    values[value.path] = printable(value.text);
  }
  add_model(run, fingerprint.must_equal);
  add_base(run, fingerprint.must_equal);
  add_data(run, fingerprint.must_equal);
  add_update(run, fingerprint.must_equal);
  fingerprint.may_change["ranks"] = fmt::format("{}", run.num_ranks);
  fingerprint.may_change["processor"] = describe_cpu_isa();
  fingerprint.may_change["steps"] = fmt::format("{}", run.samples.total_steps);
  fingerprint.may_change["data"] = printable(train_paths(run.flags));
  return fingerprint;
}

int read_data_version(const RunFingerprint& fingerprint) {
  const auto found = fingerprint.must_equal.find(kDataVersion);
  if (found == fingerprint.must_equal.end()) return 1;
  return std::clamp(parse_number<int>(found->second).value_or(data::kDataVersion), 1,
                    data::kDataVersion);
}

bool is_key_under(std::string_view key, std::string_view above) {
  return key.starts_with(above) && (key.size() == above.size() || key[above.size()] == '.');
}

bool is_changeable(const std::string& key) {
  return configs::is_changeable_on_resume(key) ||
         std::any_of(kFlagOnlyValues.begin(), kFlagOnlyValues.end(),
                     [&](const FlagOnlyValue& value) { return is_key_under(key, value.key); });
}

}  // namespace zeroth::trainer
