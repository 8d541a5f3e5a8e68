/** What a run does only if it is asked to, with the help of each option. */
export const CASE_OPTIONS = {
  freeze: 'freeze and thaw the workload, and collapse memory',
  fsfreeze: 'freeze and thaw the root file system',
  init: 'call /init with a timestamp, variables and defaults: for a guest that is thrown away',
  upgrade: 'let the daemon replace itself',
  slow: 'cases that wait for half a minute',
} as const;

export type CaseOption = keyof typeof CASE_OPTIONS;
