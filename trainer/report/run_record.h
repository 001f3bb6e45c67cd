// What Hugging Face's Trainer and run_clm.py leave beside a model, for the tools that read it:
// trainer_state.json, all_results.json, train_results.json and eval_results.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json_view.h"
#include "base/output_guard.h"
#include "trainer/best_model.h"
#include "trainer/report/metrics.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Keys, shapes and rounding are Trainer's; what is not finite is null. Keeps a reference to `plan`.
class RunRecord {
 public:
  explicit RunRecord(const RunPlan& plan);

  // All that the record of a run that goes on needs; `now`: as in rows.
  nlohmann::json history(double now) const;
  // Before the first step. Throws an Error that names what is wrong with `history`, of which
  // nothing is taken then.
  void resume_from(const JsonView& history);

  // Whether there was an evaluation after `step` steps, with a finite loss.
  bool has_eval_loss(int64_t step) const;

  // Each gives the row of log_history as monitors of Trainer's kind show it. That of a step is null
  // where --logging_steps, or another flag about it, says that it is not logged.
  nlohmann::json step(const StepRow& row);
  nlohmann::json add_evaluation(const EvalRow& row);
  // The last row, of the whole training.
  nlohmann::json final_row() const;

  // trainer_state.json in a folder that was saved on the way. So as write() for errors.
  void write_state(const std::filesystem::path& directory, const BestModel& best,
                   const OutputGuard& guard = {}) const;
  // All files, into --output, which is made if it is missing. `final_step`: whose model stands
  // there; its evaluation is the one in eval_results.json. An evaluation alone adds to the
  // all_results.json that it finds, a training begins anew. `guard` is asked before each file gets
  // its name. Throws an Error that names the file.
  void write(const BestModel& best, int64_t final_step, const OutputGuard& guard = {});

 private:
  // What all tries have told.
  struct RunTotals {
    nlohmann::json log_history = nlohmann::json::array();
    std::map<int64_t, nlohmann::json> evaluations;  // by step
    int64_t steps = 0;
    int64_t tokens = 0;
    double loss_sum = 0;
    int64_t num_summed = 0;   // steps in it
    double unlogged_sum = 0;  // of those since the loss was noted
    int64_t unlogged = 0;
    double earlier_s = 0;  // that the tries before this one have trained
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
  std::optional<double> started_s_;  // this try's first step
  double ended_s_ = 0;
};

}  // namespace zeroth::trainer
