// What Hugging Face's Trainer and run_clm.py leave beside a model, for the tools that read it:
// trainer_state.json, all_results.json, train_results.json and eval_results.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "trainer/best_model.h"
#include "trainer/report/metrics.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

// Keys, shapes and rounding are Trainer's; what is not finite is null. Keeps a reference to `plan`.
class RunRecord {
 public:
  explicit RunRecord(const RunPlan& plan);

  void step(const StepRow& row);
  void evaluated(const EvalRow& row);

  // trainer_state.json in a folder that was saved on the way. So as write() for errors.
  void write_state(const std::filesystem::path& folder, const BestModel& best) const;
  // All files, into --output, which is made if it is missing. `final_step`: whose model stands
  // there; its evaluation is the one in eval_results.json. An evaluation alone adds to the
  // all_results.json that it finds, a training begins anew. Throws an Error that names the file.
  void write(const BestModel& best, int64_t final_step);

 private:
  nlohmann::json state(const BestModel& best) const;
  nlohmann::json train_metrics() const;
  double total_flos() const;

  const RunPlan& plan_;
  Occasions log_;
  nlohmann::json log_history_ = nlohmann::json::array();
  std::map<int64_t, nlohmann::json> evaluations_;  // by step
  int64_t steps_ = 0;
  int64_t tokens_ = 0;
  double loss_sum_ = 0;      // of all steps
  double unlogged_sum_ = 0;  // of those since the loss was noted
  int64_t unlogged_ = 0;
  double started_s_ = 0;
  double ended_s_ = 0;
};

}  // namespace zeroth::trainer
