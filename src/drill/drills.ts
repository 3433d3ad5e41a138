/** Every drill, in the order in which they are run. */
import type { Drill } from './drill.ts'
import { consumerDrills } from './drills/consumer-drills.ts'
import { outageDrills } from './drills/outage-drills.ts'
import { relayDrills } from './drills/relay-drills.ts'

export const drills: readonly Drill[] = [...relayDrills, ...consumerDrills, ...outageDrills]
