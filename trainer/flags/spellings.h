// How a command line spells the flags that have several spellings, so that messages name what was
// typed.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace zeroth::trainer {

class Spellings {
 public:
  // The first spelling of a flag stays.
  void add(std::string_view ours, std::string_view typed) {
    typed_.try_emplace(std::string(ours), typed);
  }

  // "--learning_rate" for "--lr" where that was typed, else the flag itself.
  std::string lookup(std::string_view ours) const;
  // Whether it was typed with this name of Trainer's, in hyphens or underscores.
  bool is_typed_as(std::string_view ours, std::string_view name) const;
  // A message with its flags as they were typed.
  std::string as_typed(std::string text) const;

 private:
  std::map<std::string, std::string, std::less<>> typed_;  // by our name
};

}  // namespace zeroth::trainer
