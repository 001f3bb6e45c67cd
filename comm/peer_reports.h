// Who is missing on other machines: ranks whose wait lasts tell the others what they wait for,
// through the run's store. A run in which nobody waits long writes nothing, and no thread runs.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/nodes.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// Safe to call from any thread.
class PeerReports {
 public:
  // `limit` of a collective. The store's keys that begin with "told/" are unused.
  PeerReports(c10::intrusive_ptr<c10d::Store> store, int rank, Nodes nodes,
              std::chrono::milliseconds limit);

  const Nodes& nodes() const { return nodes_; }

  // This rank has waited so long. After a quarter of the limit, at most 5 s, the others can read
  // `text`, which is told again as often.
  void report_wait(std::chrono::milliseconds waited, const std::function<std::string()>& text);
  // The wait has ended well: what was told is taken back.
  void clear();
  // The rank gives up.
  void report_failure(const std::string& text);

  // What these ranks (by their numbers in the run) have told, and of those that tell nothing what
  // the other ranks of their machine did, for a person. Waits up to 2 s for it.
  std::string reports_from(const std::vector<int>& ranks);

 private:
  // Under the mutex.
  void report(const std::string& text);
  // Empty: nothing. Text of others, made fit for a message.
  std::string read(int rank);

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  Nodes nodes_;
  std::chrono::milliseconds report_interval_;
  std::chrono::milliseconds next_;  // told again after so long a wait
  bool has_reported_ = false;
  bool store_answers_ = true;
};

}  // namespace zeroth::comm
