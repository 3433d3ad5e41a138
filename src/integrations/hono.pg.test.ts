import { Hono, type Context } from 'hono'
import { commandHttpContract, listedOrigin } from '../../test/contract/command-http-contract.ts'
import { listen, nodeListener } from '../../test/integrations/listen.ts'
import { readTokenHeader } from './fetch.ts'
import { honoCommand } from './hono.ts'

const principal = (context: Context): string | undefined => context.req.header('x-user') || undefined

await commandHttpContract('hono', async ({ commands, deposit, note }) => {
  const app = new Hono()
  app.post('/deposit', honoCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }))
  app.post('/note', honoCommand(commands, note, { principal, status: 201 }))
  app.get('/token', (context) => context.text(readTokenHeader(context.req.raw.headers) ?? ''))
  return await listen(nodeListener((request) => app.fetch(request)))
})
