import type { Extension } from '../../http/extension.ts';
import type { StreamPlaces } from '../../http/protocol/stream-places.ts';
import { historyRoutes } from './history.ts';
import { type ListedGuest, usageListing } from './listing.ts';
import { addPressure, metricsStreamRoutes } from './metrics-stream.ts';

/**
 * Adds listings of the processes in the guest with the use of each, the pressure on the guest, once and as a stream, and the figures
 * of the last hour.
 */
export function usageExtension(guest: ListedGuest, places: StreamPlaces, isFrozen: () => boolean): Extension {
  return {
    listing: usageListing(guest),
    addRoutes(app) {
      addPressure(app);
      metricsStreamRoutes(app, places);
      historyRoutes(app, isFrozen);
    },
  };
}
