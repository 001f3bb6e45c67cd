// Spellings of flags on a command line, so that messages name what was typed.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace zeroth::trainer {

class Spellings {
 public:
  // Records a spelling. The first spelling of a flag stays.
  void add(std::string_view ours, std::string_view typed) {
    typed_.try_emplace(std::string(ours), typed);
  }

  // Returns "--learning_rate" for "--lr" if that was typed, otherwise the flag itself.
  std::string lookup(std::string_view ours) const;
  // Returns whether the flag was typed with this name of Trainer's, in hyphens or underscores.
  bool is_typed_as(std::string_view ours, std::string_view name) const;
  // Returns a message with its flags spelled as they were typed.
  std::string as_typed(std::string text) const;

 private:
  std::map<std::string, std::string, std::less<>> typed_;  // by our name
};

}  // namespace zeroth::trainer
