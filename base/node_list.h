// Lists of machines and of numbers as Slurm abbreviates them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace zeroth {

// "n[1-3,07],login" -> n1, n2, n3, n07, login: in the list's order, the last bracket of a name
// counting fastest; numbers keep their zeros ("[08-10]" is 08, 09, 10). Throws an Error that quotes
// the list where it is none, or has more than 65,536 names.
std::vector<std::string> expand_node_list(std::string_view list);

// "2(x3),1" -> 2, 2, 2, 1: at most 65,536 numbers, none below 0. Throws an Error as the other.
std::vector<int> expand_counts(std::string_view list);

}  // namespace zeroth
