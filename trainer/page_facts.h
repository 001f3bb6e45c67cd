// What the page of a run says beside its curves.
#pragma once

#include "monitor/run_page.h"
#include "trainer/environment.h"
#include "trainer/metrics.h"
#include "trainer/run_plan.h"

namespace zeroth::trainer {

monitor::PageFacts page_facts(const RunPlan& plan, TitledLines summary, TitledLines environment);

monitor::PageStep page_step(const StepRow& row, const engine::MemoryUse& memory);

}  // namespace zeroth::trainer
