// Files that Hugging Face's Trainer and run_clm.py leave beside a model, for the tools that read
// them: trainer_state.json, all_results.json, train_results.json and eval_results.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files/output_lock.h"
#include "base/json/json_view.h"
#include "trainer/best_model.h"
#include "trainer/report/metrics.h"
#include "trainer/step_trigger.h"

namespace zeroth::trainer {

struct RunPlan;

// RunRecord writes these files. Keys, shapes and rounding are Trainer's; numbers that are not
// finite are null. Keeps a reference to `plan`.
class RunRecord {
 public:
  explicit RunRecord(const RunPlan& plan);

  // Returns all that the record of a resumed run needs; `now`: seconds as in rows.
  nlohmann::json history(double now) const;
  // Restores the record before the first step. Throws an Error that describes what is invalid in
  // `history`, and changes nothing then.
  void resume_from(const JsonView& history);

  // Returns whether there was an evaluation after `step` steps, with a finite loss.
  bool has_eval_loss(int64_t step) const;

  // Each returns the row of log_history as monitors with Trainer's names show it. The row of a step
  // is null if --logging_steps, or another flag about logging, leaves that step out.
  nlohmann::json step(const StepRow& row);
  nlohmann::json add_evaluation(const EvalRow& row);
  // Returns the last row, which covers the full training.
  nlohmann::json final_row() const;

  // Writes trainer_state.json into the directory of a checkpoint. Throws an Error as write().
  void write_state(const std::filesystem::path& directory, const BestModel& best,
                   const OutputGuard& guard = {}) const;
  // Writes all files into --output, which is created if it is missing. `final_step`: step of the
  // model there, whose evaluation goes into eval_results.json. A run that only evaluates adds to an
  // existing all_results.json; a training run starts a new one. `guard` is called before each file
  // gets its name. Throws an Error that names the file.
  void write(const BestModel& best, int64_t final_step, const OutputGuard& guard = {});

 private:
  // Totals over all attempts.
  struct RunTotals {
    nlohmann::json log_history = nlohmann::json::array();
    std::map<int64_t, nlohmann::json> evaluations;  // by step
    int64_t steps = 0;
    int64_t tokens = 0;
    double loss_sum = 0;
    int64_t num_summed = 0;   // steps in loss_sum
    double unlogged_sum = 0;  // losses of the steps since the last logged row
    int64_t unlogged = 0;
    double earlier_s = 0;  // seconds that the attempts before this one have trained
  };

  nlohmann::json state(const BestModel& best) const;
  nlohmann::json log_row(const StepRow& row, double loss) const;
  nlohmann::json train_metrics() const;
  double total_flos() const;
  double trained_seconds() const {
    return totals_.earlier_s + (started_s_ ? ended_s_ - *started_s_ : 0);
  }

  const RunPlan& plan_;
  StepTrigger log_trigger_;
  RunTotals totals_;
  std::optional<double> started_s_;  // start of this attempt's first step
  double ended_s_ = 0;
};

}  // namespace zeroth::trainer
