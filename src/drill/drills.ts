/** Every drill, in the order in which they are run. */
import type { Drill } from './stage/drill.ts'
import { consumerDrills } from './drills/consumer.ts'
import { outageDrills } from './drills/outage.ts'
import { relayDrills } from './drills/relay.ts'

export const drills: readonly Drill[] = [...relayDrills, ...consumerDrills, ...outageDrills]
