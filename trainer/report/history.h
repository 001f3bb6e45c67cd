// Report state that a resumed run needs, as the text that its checkpoint holds.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace zeroth::trainer {

// Name of the file in a checkpoint, and of the text in messages.
inline constexpr const char* kHistoryFile = "zeroth/history.json";

struct History {
  int64_t step = 0;    // steps done
  double seconds = 0;  // since the start, over all attempts without the gaps between them
  std::optional<double> loss = {};  // of the last step
  std::string run_name = {};        // directory name in OUTPUT/runs; empty: none
  nlohmann::json record = {};       // RunRecord's history; null: unknown
  nlohmann::json page = {};         // RunPage's history; null: there is no page
};

std::string to_text(const History& history);

// Parses untrusted text. Throws an Error that names kHistoryFile and the problem. The members
// `record` and `page` are not checked: their readers check them.
History parse_history(const std::string& text);

// Returns the finite losses of evaluations in such a text, by step. Throws an Error as
// parse_history().
std::map<int64_t, double> eval_losses(const std::string& text);

}  // namespace zeroth::trainer
