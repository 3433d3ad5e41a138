import express, { type Request } from 'express'
import { commandHttpContract, listedOrigin } from '../../test/contract/command-http-contract.ts'
import { listen } from '../../test/integrations/listen.ts'
import { expressCommand } from './express.ts'
import { readTokenHeader } from './fetch.ts'

const principal = (request: Request): string | undefined => request.get('x-user') || undefined

await commandHttpContract('express', async ({ commands, deposit, note }) => {
  const app = express()
  app.use(express.json())
  app.post('/deposit', expressCommand(commands, deposit, { principal, allowedOrigins: [listedOrigin] }))
  app.post('/note', expressCommand(commands, note, { principal, status: 201 }))
  app.get('/token', (request, response) => void response.send(readTokenHeader(request.headers)))
  return await listen(app)
})
