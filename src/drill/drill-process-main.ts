/** The program that drills start for each relay, consumer and service. */
import { runDrillProcess } from './drill-process.ts'

await runDrillProcess()
