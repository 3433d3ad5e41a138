/**
 * How a drill tells a process what it is: by an environment variable. The address of the database may hold a password, and
 * everybody on a machine can read the arguments of a process, but only its owner its environment.
 */
import type { ProcessSettings } from './process.ts'

const variable = 'WAYBILL_DRILL_PROCESS'

/** What to add to the environment of the process. */
export function settingsEnvironment(settings: ProcessSettings): Readonly<Record<string, string>> {
  return { [variable]: JSON.stringify(settings) }
}

/** What this process was told. */
export function toldSettings(): ProcessSettings {
  return JSON.parse(process.env[variable] ?? '') as ProcessSettings
}
