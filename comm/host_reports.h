// Who is missing on other machines: ranks whose wait lasts tell the others what they wait for,
// through the run's store. A run in which nobody waits long writes nothing, and no thread runs.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "comm/hosts.h"

namespace c10d {
class Store;
}

namespace zeroth::comm {

// Safe to call from any thread.
class HostReports {
 public:
  // `limit` of a collective. The store's keys that begin with "told/" are unused.
  HostReports(c10::intrusive_ptr<c10d::Store> store, int rank, Hosts hosts,
              std::chrono::milliseconds limit);

  const Hosts& hosts() const { return hosts_; }

  // This rank has waited so long. After a quarter of the limit, at most 5 s, the others can read
  // `text`, which is told again as often.
  void waits(std::chrono::milliseconds waited, const std::function<std::string()>& text);
  // The wait has ended well: what was told is taken back.
  void over();
  // The rank gives up.
  void failed(const std::string& text);

  // What these ranks (by their numbers in the run) have told, and of those that tell nothing what
  // the other ranks of their machine did, for a person. Waits up to 2 s for it.
  std::string told_by(const std::vector<int>& ranks);

 private:
  // Under the mutex.
  void tell(const std::string& text);
  // Empty: nothing. Text of others, made fit for a message.
  std::string read(int rank);

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_;
  Hosts hosts_;
  std::chrono::milliseconds patience_;
  std::chrono::milliseconds next_;  // told again after so long a wait
  bool told_ = false;
  bool store_answers_ = true;
};

}  // namespace zeroth::comm
