/** Whether a stack calls itself production, by any of the names that it has for itself. */

export interface StackNames {
  /** What the configuration and the environment of the process say. */
  readonly environments: readonly string[]
  /** What the configuration and the database say. */
  readonly deploymentIds: readonly string[]
}

/** What gives it away, as the end of a sentence; `undefined` if nothing does. */
export function productionSign({ environments, deploymentIds }: StackNames): string | undefined {
  const environment = environments.find(isProduction)
  if (environment !== undefined) return `its environment is "${environment}"`
  const deploymentId = deploymentIds.find(isProduction)
  return deploymentId === undefined ? undefined : `its deployment is "${deploymentId}"`
}

/** `prod` or `production` as a word of its own: `eu-prod-1`, not `reproduction`. */
function isProduction(name: string): boolean {
  return /(?:^|[^a-z])(?:prod|production|live)(?:$|[^a-z])/i.test(name)
}
