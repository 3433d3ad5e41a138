/** What a stack calls itself: production, by any of the names that it has, or development, by its deployment. */

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

/** Whether a deployment is named as one for development: `dev`, `ann-dev`, `local`. */
export function isDevelopment(deploymentId: string): boolean {
  return hasWord(deploymentId, 'dev|development|local')
}

function isProduction(name: string): boolean {
  return hasWord(name, 'prod|production|live')
}

/** As a word of its own: `eu-prod-1`, not `reproduction`. */
function hasWord(name: string, words: string): boolean {
  return new RegExp(`(?:^|[^a-z])(?:${words})(?:$|[^a-z])`, 'i').test(name)
}
