import { choice, object, positive, presence } from '../../../base/shape.ts';
import { FREEZE_MODES } from '../../services/pause/freezer.ts';

export const HEALTH_QUERY = object({ verbose: presence });

/** An unknown mode is refused. Platforms infer from X-Envd-Version which modes there are. */
export const FREEZE_QUERY = object({
  mode: choice(FREEZE_MODES, 'legacy'),
  maxCgroups: positive(512),
  maxWaitMs: positive(0),
});
