// What every row has to fulfil.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/equivalence/row.h"
#include "tests/equivalence/run_row.h"

namespace zeroth::equivalence {

// What tools/make_equivalence_fixtures.py wrote: "llama" gives fixtures/llama.json.
nlohmann::json load_fixture(const std::string& name);

// Runs rows and compares them. Each is run once in a process: many are compared with the same.
class RowChecker {
 public:
  // Losses, norms and rates against the fixture, invariants, bits against plain(row) (a host's step
  // on a GPU: against the same over host memory), first gradients, moments and parameters against
  // single(row) by the bounds of reach.h. Failures name the row. Leaves out what can_run()
  // excludes. Short samples have no fixture: their losses and first gradients are within 2e-5 of
  // those of single(row), and bits equal plain(row)'s.
  void check(const Row& row);
  // False for ranks on a tensor axis that would have to share a GPU.
  bool can_run(const Row& row);
  // A row in 16 bits whose reference is a run in fp32: invariants, and losses as near to it as
  // AdamW's in 16 bits are to those in fp32.
  void check_near(const Row& row, const std::string& fp32_run);

  const RowResult& result(const Row& row);
  // Of single(row), from runs that are made once in a process.
  const Noise& noise(const Row& row);
  const Tensors& reach(const Row& row);
  // Largest differences so far and what was left out, for the log.
  std::string worst() const;

 private:
  void check_losses(const Row& row, const RowResult& result);
  void check_dropped_losses(const Row& row, const RowResult& result);
  void check_short_losses(const Row& row, const RowResult& result);
  void check_shared_losses(const Row& row, const RowResult& result);
  void check_unclipped_losses(const Row& row, const RowResult& result);
  void check_parameters(const Row& row, const RowResult& result);
  void note(const std::string& what, double value, double limit);
  const Tensors& gradients(const Row& row);

  inline static std::map<std::string, RowResult> results_;
  inline static std::map<std::string, Tensors> gradients_;
  inline static std::map<std::string, Noise> noises_;
  inline static std::map<std::string, Tensors> reaches_;
  std::map<std::string, double> worst_;
  int rows_ = 0;
  int left_out_ = 0;
};

}  // namespace zeroth::equivalence
