// A JSON file in place of flags, as Hugging Face's HfArgumentParser accepts it.
#pragma once

#include <string>
#include <vector>

namespace zeroth::trainer {

// Returns the flags in a .json file, "--key=value" each, if its name is the only argument (except
// --local_rank); otherwise returns the arguments unchanged. A null counts as a missing key, a list
// as several values, and an object is passed on as JSON. Throws an Error that names the file and
// the place.
std::vector<std::string> expand_argument_file(std::vector<std::string> arguments);

}  // namespace zeroth::trainer
