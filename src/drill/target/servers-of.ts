/** The servers that a drill may stop. */
import { WaybillError } from '../../core/errors.ts'
import type { EmbeddedServers, Target } from './target.ts'

/** Drills that say `needs: 'servers'` are not run where there are none. */
export function serversOf({ servers }: Target): EmbeddedServers {
  if (servers === undefined)
    throw new WaybillError('INTERNAL', 'A drill that stops servers was run on a stack that is not its own.')
  return servers
}
