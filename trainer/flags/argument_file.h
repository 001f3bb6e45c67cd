// A JSON file in place of flags, as Hugging Face's HfArgumentParser takes it.
#pragma once

#include <string>
#include <vector>

namespace zeroth::trainer {

// Where the only argument (beside --local_rank) is the name of a .json file: the flags that it
// holds, "--key=value" each; else the arguments as they are. null is as if the key were not there,
// a list is several values, an object is handed on as JSON. Throws an Error that names file and
// place.
std::vector<std::string> expand_argument_file(std::vector<std::string> arguments);

}  // namespace zeroth::trainer
