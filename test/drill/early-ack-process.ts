/** A process of the drills whose consumer acknowledges before it commits: what a crash then takes with it is lost. */
import { runDrillProcess } from '../../src/drill/system/process.ts'

await runDrillProcess({
  alter: (delivery) => {
    const acknowledged = delivery.ack()
    return { message: delivery.message, lost: delivery.lost, ack: () => acknowledged, nack: () => Promise.resolve() }
  },
})
