// Ranks as threads of a test, of which any may be lost.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "checkpoint/rank_group.h"

namespace zeroth::checkpoint {

class ThreadRankGroup {
 public:
  explicit ThreadRankGroup(int size) : size_(size), given_(static_cast<size_t>(size)) {}

  class Member : public RankGroup {
   public:
    Member(ThreadRankGroup& group, int rank) : group_(group), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return group_.size_; }
    std::vector<std::string> gather(const std::string& mine) override {
      return group_.gather(rank_, mine);
    }

   private:
    ThreadRankGroup& group_;
    int rank_;
  };

  // Runs `work` on each rank. What a rank throws is its result: the message, or "lost" of what is
  // no std::exception; "" of a rank that came to its end. A rank that throws is lost to the others.
  std::vector<std::string> run(const std::function<void(RankGroup&)>& work) {
    std::vector<std::string> results(static_cast<size_t>(size_));
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        Member member(*this, rank);
        try {
          work(member);
          return;
        } catch (const std::exception& error) {
          results[static_cast<size_t>(rank)] = error.what();
        } catch (...) {
          results[static_cast<size_t>(rank)] = "lost";
        }
        lose(rank);
      });
    }
    threads.clear();
    return results;
  }

 private:
  void lose(int rank) {
    const std::lock_guard lock(mutex_);
    lost_ = rank;
    changed_.notify_all();
  }

  std::vector<std::string> gather(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    const int round = round_;
    given_[static_cast<size_t>(rank)] = mine;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      all_ = given_;
      changed_.notify_all();
    }
    changed_.wait(lock, [&] { return round_ != round || lost_ >= 0; });
    if (round_ == round) throw Error("rank {} is lost", lost_);
    return all_;
  }

  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> given_, all_;
  int here_ = 0;
  int round_ = 0;
  int lost_ = -1;
};

}  // namespace zeroth::checkpoint
