/* The subcommands of dynatrain: argc and argv from the command's own name on;
 * each answers with an exit code (cli/exit.h). */
#ifndef DYTI_CLI_COMMANDS_H
#define DYTI_CLI_COMMANDS_H

int dyti_cmd_run(int argc, char **argv);
int dyti_cmd_worker(int argc, char **argv); /* started by run, not by people */
int dyti_cmd_generate(int argc, char **argv);
int dyti_cmd_plan(int argc, char **argv);
int dyti_cmd_layout(int argc, char **argv);
int dyti_cmd_convert(int argc, char **argv);
int dyti_cmd_model(int argc, char **argv);
int dyti_cmd_serve(int argc, char **argv);
int dyti_cmd_keys(int argc, char **argv);
int dyti_cmd_status(int argc, char **argv);
int dyti_cmd_tokenize(int argc, char **argv);
int dyti_cmd_doctor(int argc, char **argv);
int dyti_cmd_env(int argc, char **argv);

#endif /* DYTI_CLI_COMMANDS_H */
