/** The program that drills start for each relay, consumer and service. */
import { runDrillProcess } from './process.ts'

await runDrillProcess()
