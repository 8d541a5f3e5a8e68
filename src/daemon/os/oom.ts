import { writeFileSync } from 'node:fs';

/** Never chosen by the kernel's out-of-memory killer. Source: proc_pid_oom_score_adj(5). */
const NEVER = '-1000';

/** Makes this process the last to be killed when memory runs out; throws EACCES without CAP_SYS_RESOURCE. */
export function protectFromOomKiller(): void {
  writeFileSync('/proc/self/oom_score_adj', NEVER);
}
