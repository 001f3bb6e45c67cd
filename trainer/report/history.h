// What the reports of a run that goes on need of before, as the text that its checkpoint holds.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace zeroth::trainer {

// The file in a checkpoint, and what messages call the text.
inline constexpr const char* kHistoryFile = "zeroth/history.json";

struct History {
  int64_t step = 0;                 // that are done
  double seconds = 0;               // since the start, of all tries without what lay between them
  std::optional<double> loss = {};  // of the last step
  std::string run_name = {};        // of its folder in OUTPUT/runs; empty: none
  nlohmann::json record = {};       // RunRecord's; null: unknown
  nlohmann::json page = {};         // RunPage's; null where there is none
};

std::string to_text(const History& history);

// Somebody else's text: throws an Error that names kHistoryFile and what is wrong. The trees are
// as they are: whoever takes them looks.
History parse_history(const std::string& text);

// Of such a text: the finite losses of evaluations, by step. Throws an Error as parse_history().
std::map<int64_t, double> eval_losses(const std::string& text);

}  // namespace zeroth::trainer
