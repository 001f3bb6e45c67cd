#include "trainer/attempt_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files/directory.h"
#include "base/files/replace_file.h"
#include "base/json/json.h"
#include "base/json/json_view.h"
#include "base/machine/process_limits.h"
#include "base/text/printable.h"

namespace zeroth::trainer {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVersion = 1;
constexpr size_t kMaxAttempts = 1000;
constexpr int64_t kMaxCount = std::numeric_limits<int64_t>::max() / 4;
constexpr JsonLimits kLimits = {.bytes = size_t{4} << 20, .values = 20'000};

// The number of steps is last and has a fixed width, so that it can be overwritten in place.
constexpr int kStepDigits = 19;
constexpr std::string_view kEnd = "}\n";

nlohmann::ordered_json row_to_json(const AttemptRow& row) {
  return {{"round", row.round}, {"hosts", row.hosts},
          {"ranks", row.ranks}, {"cause", row.cause},
          {"step", row.step},   {"lost", row.lost ? nlohmann::ordered_json(*row.lost) : nullptr}};
}

AttemptRow parse_row(const JsonView& view) {
  AttemptRow row{.round = view.at("round").integer(0, kMaxCount),
                 .hosts = view.at("hosts").integer(1, kMaxCount),
                 .ranks = view.at("ranks").integer(1, kMaxCount),
                 .cause = printable(view.at("cause").text()),
                 .step = view.at("step").integer(0, kMaxCount)};
  if (const auto lost = view.find("lost")) row.lost = lost->integer(0, kMaxCount);
  return row;
}

AttemptRecord parse_record(const JsonView& view) {
  (void)view.at("version").integer(kVersion, kVersion);
  AttemptRecord record{.run = view.at("run").text(),
                       .batch = view.at("train_batch_size").integer(1, kMaxCount),
                       .micro_batch = view.at("micro_batch").integer(1, kMaxCount),
                       .run_name = view.at("run_name").text(),
                       .step = view.at("step").integer(0, kMaxCount)};
  const JsonView rounds = view.at("rounds");
  for (size_t i = 0; i < rounds.size(); ++i) record.rounds.push_back(parse_row(rounds.at(i)));
  return record;
}

}  // namespace

std::string AttemptRecord::text() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t i = rounds.size() - std::min(rounds.size(), kMaxAttempts); i < rounds.size(); ++i) {
    rows.push_back(row_to_json(rounds[i]));
  }
  std::string all =
      nlohmann::ordered_json{{"version", kVersion},       {"run", run},
                             {"train_batch_size", batch}, {"micro_batch", micro_batch},
                             {"run_name", run_name},      {"rounds", std::move(rows)}}
          .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  all.pop_back();  // remove the closing brace
  return fmt::format("{},\"step\":{:{}}{}", all, step, kStepDigits, kEnd);
}

AttemptRecord parse_attempts(const std::string& text) {
  const nlohmann::json tree = parse_json(text, {.name = kAttemptFile, .limits = kLimits});
  try {
    return parse_record(JsonView(tree));
  } catch (const Error& error) {
    throw Error("{}: {}", kAttemptFile, error.what());
  }
}

std::optional<AttemptRecord> read_attempts(const fs::path& output) {
  const fs::path path = output / kAttemptFile;
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return std::nullopt;
  const nlohmann::json tree = read_json({.name = path.string(), .limits = kLimits});
  try {
    return parse_record(JsonView(tree));
  } catch (const Error& error) {
    throw Error("{}: {}", path.string(), error.what());
  }
}

AttemptFile::AttemptFile(const fs::path& output, const AttemptRecord& record,
                         const OutputGuard& guard) {
  if (guard) guard();
  Directory::create(output);
  const fs::path path = output / kAttemptFile;
  const std::string text = record.text();
  replace_file(path, text, guard);
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file_.get() < 0) throw Error("{}: {}", path.string(), system_reason(errno));
  step_offset_ = std::ssize(text) - std::ssize(kEnd) - kStepDigits;
}

void AttemptFile::step(int64_t step) {
  const std::string text = fmt::format("{:{}}", step, kStepDigits);
  [[maybe_unused]] const ssize_t ignored =
      ::pwrite(file_.get(), text.data(), text.size(), step_offset_);
}

}  // namespace zeroth::trainer
