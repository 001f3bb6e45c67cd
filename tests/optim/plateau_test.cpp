#include "optim/schedule/plateau.h"

#include <doctest/doctest.h>

#include <limits>

#include "tests/optim/fixtures.h"
#include "tests/optim/hf_schedule.h"

namespace zeroth::optim {

TEST_CASE("after each evaluation the rate is that of torch's ReduceLROnPlateau") {
  int reductions = 0;
  for (const nlohmann::json& fixture : load_fixture("plateau.json")) {
    const std::string kwargs = fixture["kwargs"].dump();
    LrSchedule schedule =
        schedule_for(flags_for("reduce_lr_on_plateau", fixture["lr"], kwargs), 60);
    CAPTURE(kwargs);
    CHECK(schedule.at(7) == fixture["lr"]);
    for (size_t i = 0; i < fixture["losses"].size(); ++i) {
      CAPTURE(i);
      const nlohmann::json& loss = fixture["losses"][i];
      const double before = schedule.at(0);
      schedule.record_evaluation(loss.is_null() ? std::numeric_limits<double>::quiet_NaN()
                                                : loss.get<double>());
      CHECK(schedule.at(static_cast<int64_t>(i)) == fixture["rates"][i]);
      if (schedule.at(0) < before) ++reductions;
    }
  }
  CHECK(reductions > 20);
}

}  // namespace zeroth::optim
