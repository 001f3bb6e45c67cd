// What ranks save, whole, in memory.
#pragma once

#include <ATen/ATen.h>
#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/state/run_state.h"

namespace zeroth::engine {

// What all ranks of a run save, whole: each element has to come once.
class SavedRun {
 public:
  class Sink final : public StateSink {
   public:
    explicit Sink(SavedRun& run) : run_(run) {}
    void begin(const std::vector<StateSlice>& pieces) override { pieces_ = pieces; }
    void write(size_t index, int64_t first, const torch::Tensor& values) override {
      run_.put(pieces_.at(index), first, values);
    }

   private:
    SavedRun& run_;
    std::vector<StateSlice> pieces_;
  };
  class Source final : public StateSource {
   public:
    explicit Source(SavedRun& run) : run_(run) {}
    void read(const StateSlice& piece, torch::Tensor values) override {
      const std::lock_guard lock(run_.mutex_);
      const auto found = run_.values_.find(name_of(piece));
      if (found == run_.values_.end()) throw Error("nothing is saved of {}", name_of(piece));
      values.copy_(found->second.index_select(0, elements_of(piece, 0, piece.size())));
    }
    bool stores(const StateSlice& piece) override {
      const auto found = run_.values_.find(name_of(piece));
      return found != run_.values_.end() && found->second.numel() == piece.box.tensor_elements();
    }

   private:
    SavedRun& run_;
  };

  RunCounters counters;

  void check_complete() const {
    CHECK(values_.size() > 0);
    for (const auto& [name, times] : written_) {
      CHECK_MESSAGE(times.eq(1).all().item<bool>(), name);
    }
  }
  // Whether any state of the parameter is saved.
  bool holds(const std::string& parameter) const {
    const auto found = values_.lower_bound(parameter + ":");
    return found != values_.end() && found->first.starts_with(parameter + ":");
  }
  bool operator==(const SavedRun& other) const {
    if (values_.size() != other.values_.size()) return false;
    for (const auto& [name, values] : values_) {
      const auto found = other.values_.find(name);
      if (found == other.values_.end() || !at::equal(values, found->second)) return false;
    }
    return counters == other.counters;
  }

 private:
  static std::string name_of(const StateSlice& piece) {
    return piece.parameter + ":" + piece.state;
  }

  // The piece's elements, as they are numbered in the whole parameter.
  static at::Tensor elements_of(const StateSlice& piece, int64_t first, int64_t count) {
    at::Tensor box = at::arange(piece.box.tensor_elements()).view(piece.box.shape);
    for (size_t i = 0; i < piece.box.shape.size(); ++i) {
      box = box.narrow(static_cast<int64_t>(i), piece.box.offsets[i], piece.box.sizes[i]);
    }
    return box.reshape(-1).narrow(0, piece.begin + first, count);
  }

  void put(const StateSlice& piece, int64_t first, const torch::Tensor& values) {
    const std::lock_guard lock(mutex_);
    const std::string name = name_of(piece);
    if (!values_.contains(name)) {
      values_[name] = at::zeros({piece.box.tensor_elements()}, piece.dtype);
      written_[name] = at::zeros_like(values_[name]);
    }
    const at::Tensor elements = elements_of(piece, first, values.numel());
    values_[name].index_copy_(0, elements, values);
    written_[name].index_add_(0, elements, at::ones_like(values));
  }

  std::mutex mutex_;
  std::map<std::string, torch::Tensor> values_, written_;
};

}  // namespace zeroth::engine
