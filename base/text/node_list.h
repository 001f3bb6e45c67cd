// Parsers of Slurm's abbreviated lists of nodes and of counts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// Expands "n[1-3,07],login" to n1, n2, n3, n07, login: in the list's order, with the last bracket
// of a name varying fastest. Numbers keep their leading zeros ("[08-10]" is 08, 09, 10). Throws an
// Error that quotes the list if it is invalid or has more than 65,536 names.
std::vector<std::string> expand_node_list(std::string_view list);

// Expands "2(x3),1" to 2, 2, 2, 1: at most 65,536 numbers, none negative. Throws like
// expand_node_list().
std::vector<int> expand_counts(std::string_view list);

}  // namespace zeroth
