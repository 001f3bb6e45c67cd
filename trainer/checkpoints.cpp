#include "trainer/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "base/error.h"
#include "model/temporary_folder.h"
#include "trainer/agreement.h"
#include "trainer/hf_output.h"

namespace zeroth::trainer {
namespace {

constexpr std::string_view kStep = "step-";

}  // namespace

bool is_step_folder(const std::string& name) {
  return name.starts_with(kStep) && name.size() > kStep.size() &&
         std::all_of(name.begin() + kStep.size(), name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

bool Checkpoints::due(int64_t step) const {
  const auto& every = plan_.flags.save_every;
  return every && step % *every == 0 && step != plan_.total_steps;
}

std::filesystem::path Checkpoints::save_step(int64_t step) {
  const std::filesystem::path folder =
      std::filesystem::path(plan_.flags.output) / fmt::format("{}{}", kStep, step);
  save(folder, /*overwrite=*/true);
  on_the_way_.push_back(folder);
  std::optional<std::string> complaint;
  while (on_the_way_.size() > kKept) {
    const std::filesystem::path oldest = on_the_way_.front();
    on_the_way_.pop_front();
    try {
      if (engine_.mesh().rank() == 0) model::remove_folder(oldest);
    } catch (const Error& error) {
      complaint = error.what();
    }
  }
  throw_if_rank_0_failed(engine_.mesh(), complaint);
  return folder;
}

void Checkpoints::save_final() {
  save(plan_.flags.output, plan_.flags.overwrite);
}

void Checkpoints::save(const std::filesystem::path& folder, bool overwrite) {
  HfOutput output(
      {.source = plan_.flags.model, .output = folder, .spec = plan_.spec, .overwrite = overwrite},
      plan_.flags.save_dtype);
  engine_.save_model(output);
  throw_if_rank_0_failed(engine_.mesh(), output.finish());
}

}  // namespace zeroth::trainer
